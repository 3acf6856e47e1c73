package web

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"mime"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"
)

//go:embed assets
var assetFiles embed.FS

// asset is an embedded file, compressed once.
type asset struct {
	hash       string
	text, gzip []byte
	media      string
}

// assets are the files by name. They are compressed when the first page is shown.
var assets = sync.OnceValue(func() map[string]asset {
	list, err := assetFiles.ReadDir("assets")
	if err != nil {
		panic(err)
	}
	found := map[string]asset{}
	for _, file := range list {
		text, err := assetFiles.ReadFile("assets/" + file.Name())
		if err != nil {
			panic(err)
		}
		sum := sha256.Sum256(text)
		found[file.Name()] = asset{hex.EncodeToString(sum[:8]), text, compress(text, gzip.BestCompression), mime.TypeByExtension(path.Ext(file.Name()))}
	}
	return found
})

func compress(text []byte, level int) []byte {
	var packed bytes.Buffer
	w, _ := gzip.NewWriterLevel(&packed, level) // which exists
	w.Write(text)
	w.Close()
	return packed.Bytes()
}

func acceptsGzip(r *http.Request) bool {
	return strings.Contains(r.Header.Get("Accept-Encoding"), "gzip")
}

// assetPath is the address of a file, which changes with its content.
func assetPath(name string) string { return "/assets/" + assets()[name].hash + "/" + name }

func serveAsset(w http.ResponseWriter, r *http.Request) {
	a, ok := assets()[r.PathValue("name")]
	if !ok || a.hash != r.PathValue("hash") {
		http.NotFound(w, r)
		return
	}
	h, body := w.Header(), a.text
	h.Set("Content-Type", a.media)
	h.Set("Cache-Control", "public, max-age=31536000, immutable")
	h.Set("Vary", "Accept-Encoding")
	if acceptsGzip(r) {
		h.Set("Content-Encoding", "gzip")
		body = a.gzip
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.Write(body)
}
