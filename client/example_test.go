package client_test

import (
	"context"
	"fmt"
	"log"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/client"
)

func Example() {
	url, stop := exampleServer() // such as http://127.0.0.1:7070
	defer stop()
	ctx := context.Background()

	c, err := client.New(url)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	job, err := c.CreateJob(ctx, belfry.Manifest{
		Name:    "morning report",
		Spec:    belfry.Spec{Schedule: "30 9 * * MON-FRI", Timezone: "Europe/Paris", MaxRetries: belfry.Some(0)},
		Payload: belfry.MustJSON(belfry.HTTPPayload{URL: "https://example.com/hook"}),
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(job.Name, "is", job.Status)

	for job, err := range c.Jobs(ctx, belfry.JobFilter{Search: "report"}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("found", job.Name, "of type", job.Type)
	}

	_, err = c.CreateJob(ctx, belfry.Manifest{
		Name: "morning report", Spec: belfry.Spec{Schedule: "@daily"}, Payload: belfry.MustJSON(belfry.HTTPPayload{URL: "https://example.com"}),
	})
	fmt.Println(belfry.CodeOf(err))
	// Output:
	// morning report is scheduled
	// found morning report of type http
	// conflict
}

// An edit that must not overwrite another change names the version that it is based on.
func ExampleClient_EditJob() {
	url, stop := exampleServer()
	defer stop()
	ctx := context.Background()
	c, err := client.New(url)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	if _, _, err = c.PutJob(ctx, "backup", belfry.Manifest{Spec: belfry.Spec{Schedule: "@daily", Type: belfry.TypeWorker}}); err != nil {
		log.Fatal(err)
	}

	_, version, err := c.JobWithVersion(ctx, "backup")
	if err != nil {
		log.Fatal(err)
	}
	job, err := c.EditJob(ctx, "backup", belfry.Manifest{Spec: belfry.Spec{Schedule: "@hourly"}}, client.IfMatch(version))
	fmt.Println(job.Schedule, job.Revision, err)
	_, err = c.EditJob(ctx, "backup", map[string]any{"queue": "slow"}, client.IfMatch(version))
	fmt.Println(belfry.CodeOf(err))
	// Output:
	// @hourly 2 <nil>
	// changed
}
