// Command receiver is a service that Belfry calls. It makes each charge once, however
// often it is requested: a charge and its Idempotency-Key are one line of one file, so
// that the effect and its key are stored together or not at all.
//
//	go run ./examples/receiver -listen 127.0.0.1:8080 -ledger charges.log
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:8080", "address to serve on")
	path := flag.String("ledger", "charges.log", "file with the charges that were made")
	flag.Parse()
	l, err := openLedger(*path)
	if err != nil {
		log.Fatal(err)
	}
	listener, err := net.Listen("tcp", *listen)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("listening on http://%s\n", listener.Addr())
	http.Handle("POST /charge", charge(l))
	http.Handle("GET /charges", list(l))
	log.Fatal(http.Serve(listener, nil))
}

// charge responds with 200 only once the charge is on disk. Belfry retries until then,
// and a retry gets the response without a second charge.
func charge(l *ledger) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		key := r.Header.Get("Idempotency-Key")
		if key == "" {
			http.Error(w, "the header Idempotency-Key is missing", http.StatusBadRequest)
			return
		}
		var request struct{ Amount int }
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(&request); err != nil {
			http.Error(w, "the body must be JSON, as in {\"amount\": 5}", http.StatusBadRequest)
			return
		}
		first, err := l.add(entry{key, request.Amount})
		if err != nil {
			log.Print(err)
			http.Error(w, "the charge could not be written; try again", http.StatusInternalServerError)
			return
		}
		if !first {
			fmt.Fprintln(w, "charged before")
			return
		}
		fmt.Fprintln(w, "charged")
	}
}

func list(l *ledger) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(l.entries())
	}
}
