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
	job, err := c.CreateJob(ctx, client.Draft{
		Name:       "morning report",
		Schedule:   "30 9 * * MON-FRI",
		Timezone:   "Europe/Paris",
		MaxRetries: new(0),
		Payload:    map[string]any{"url": "https://example.com/hook"},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(job.Name, "is", job.Status)

	for job, err := range c.Jobs(ctx, client.JobFilter{Search: "report"}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("found", job.Name, "of type", job.Type)
	}

	_, err = c.CreateJob(ctx, client.Draft{Name: "morning report", Schedule: "@daily", Payload: map[string]any{"url": "https://example.com"}})
	fmt.Println(belfry.CodeOf(err))
	// Output:
	// morning report is scheduled
	// found morning report of type http
	// conflict
}

// An edit that must not undo somebody else's names the version that it is based on.
func ExampleClient_EditJob() {
	url, stop := exampleServer()
	defer stop()
	ctx := context.Background()
	c, err := client.New(url)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	if _, _, err = c.PutJob(ctx, "backup", client.Draft{Schedule: "@daily", Type: belfry.TypeWorker}); err != nil {
		log.Fatal(err)
	}

	_, version, err := c.JobWithVersion(ctx, "backup")
	if err != nil {
		log.Fatal(err)
	}
	job, err := c.EditJob(ctx, "backup", client.Draft{Schedule: "@hourly"}, client.IfMatch(version))
	fmt.Println(job.Schedule, job.Revision, err)
	_, err = c.EditJob(ctx, "backup", map[string]any{"queue": "slow"}, client.IfMatch(version))
	fmt.Println(belfry.CodeOf(err))
	// Output:
	// @hourly 2 <nil>
	// changed
}
