package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/belfry-sh/belfry/internal/webhook"
)

// maxWebhook is how much of a request is read.
const maxWebhook = 16 << 20

func verifyWebhookCommand() *cobra.Command {
	var secretFile string
	var tolerance time.Duration
	header := http.Header{}
	cmd := &cobra.Command{
		Use: "verify-webhook --secret-file FILE", Short: "Check the signature of a callback, without a server",
		Long: `Check the signature of a request that Belfry, or anybody else who signs as Standard
Webhooks describes, has sent. The request is read from standard input as it came over the
network: request line, headers, a blank line and the body. With --id, --timestamp and
--signature, which are the headers, standard input is the body alone.

The file has a key on each line, as whsec_ and base64; a signature of one of them is enough.
No server is needed.

  belfry verify-webhook --secret-file hooks.key < request.txt
  belfry verify-webhook --secret-file hooks.key --id "$ID" --timestamp "$TIME" --signature "$SIGNATURE" < body.json

The exit code is 0 for a valid request, and 4 for one to refuse.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if secretFile == "" {
				return usagef("--secret-file is required: a file with the key, as whsec_ and base64")
			}
			keys, err := readWebhookKeys(secretFile)
			if err != nil {
				return err
			}
			body, err := io.ReadAll(io.LimitReader(cmd.InOrStdin(), maxWebhook+1))
			if err != nil {
				return fmt.Errorf("read standard input: %w", err)
			}
			if len(body) > maxWebhook {
				return fmt.Errorf("standard input has more than %d MiB", maxWebhook>>20)
			}
			flags := cmd.Flags()
			if !flags.Changed("id") && !flags.Changed("timestamp") && !flags.Changed("signature") {
				if header, body, err = readWebhook(body); err != nil {
					return usagef("%w; give --id, --timestamp and --signature if it is the body alone", err)
				}
			}
			if err := webhook.Verify(header, body, time.Now(), tolerance, keys...); err != nil {
				return exitError{fmt.Errorf("refuse it: %w", err), exitRefused}
			}
			fmt.Fprintf(cmd.OutOrStdout(), "valid: %s, %d bytes\n", header.Get(webhook.IDHeader), len(body))
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&secretFile, "secret-file", "", "file with a key on each line")
	f.DurationVar(&tolerance, "tolerance", 5*time.Minute, "how far the time of the signature may be from now")
	for flag, name := range map[string]string{"id": webhook.IDHeader, "timestamp": webhook.TimestampHeader, "signature": webhook.SignatureHeader} {
		f.Func(flag, "the header "+strings.ToLower(name), func(value string) error {
			header.Set(name, value)
			return nil
		})
	}
	return cmd
}

func readWebhookKeys(path string) (keys [][]byte, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("--secret-file: %w", err)
	}
	for i, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		key, err := webhook.ParseKey(strings.TrimSpace(line))
		if err != nil {
			return nil, fmt.Errorf("--secret-file: line %d of %s %w", i+1, path, err)
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// readWebhook reads a request as it was sent. Without a length, all that follows is its body.
func readWebhook(raw []byte) (http.Header, []byte, error) {
	rest := bufio.NewReader(bytes.NewReader(raw))
	req, err := http.ReadRequest(rest)
	if err != nil {
		return nil, nil, fmt.Errorf("standard input is no HTTP request: %w", err)
	}
	var body io.Reader = req.Body
	if req.Header.Get("Content-Length") == "" && len(req.TransferEncoding) == 0 {
		body = rest
	}
	content, err := io.ReadAll(body)
	if err != nil {
		return nil, nil, fmt.Errorf("the body of the request is not complete: %w", err)
	}
	return req.Header, content, nil
}
