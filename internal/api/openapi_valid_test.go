package api

import (
	"context"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
)

// A validator that shares nothing with what made the document must find nothing
// wrong with it, nor with any of its examples.
func TestDocumentIsValidOpenAPI(t *testing.T) {
	for _, of := range []traits{{}, {version: "1.2.3", keyed: true, limited: true}} {
		d, err := openapi3.NewLoader().LoadFromData(textOf(t, of))
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Validate(context.Background(), openapi3.EnableExamplesValidation(), openapi3.EnableSchemaFormatValidation()); err != nil {
			t.Errorf("%+v: %v", of, err)
		}
		d.Info.Title = ""
		if d.Validate(context.Background()) == nil {
			t.Error("the validator finds nothing wrong with a document that has no title")
		}
	}
}
