// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package console_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"

	"github.com/refold-io/refold/console"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/plugins/inmem"
)

// A program mounts the console beside its own pages. The address that LoginURL returns admits one
// browser.
func Example() {
	operator := newNodes() // for example of nats.ConnectOperator
	c, err := console.New(console.Options{Admin: operator, Prefix: "/console/"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	mux := http.NewServeMux()
	mux.Handle("/console/", c)
	server := httptest.NewServer(mux)
	defer server.Close()

	for _, address := range []string{server.URL + "/console/", c.LoginURL(server.URL)} {
		response, err := http.DefaultTransport.RoundTrip(httptest.NewRequest(http.MethodGet, address, nil))
		if err != nil {
			fmt.Println(err)
			return
		}
		_ = response.Body.Close()
		fmt.Printf("%d %q\n", response.StatusCode, response.Header.Get("Location"))
	}
	// Output:
	// 401 ""
	// 303 "/console/"
}

// An agent shows a program without a cluster. It replaces the memos of deposits before they leave the
// process.
func ExampleNewAgent() {
	db, err := inmem.Open()
	if err != nil {
		fmt.Println(err)
		return
	}
	rt, err := eventsourcing.Open(eventsourcing.Config{Store: db})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = rt.Close(context.Background()) }()
	accounts, err := eventsourcing.Host(rt, accountType())
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err = eventsourcing.Ask(context.Background(), accounts.Ref("7"), deposit{Amount: 30, Memo: "rent for May"}); err != nil {
		fmt.Println(err)
		return
	}

	agent, err := console.NewAgent(console.AgentConfig{
		Runtime: rt, Types: []console.Type{console.TypeOf(accountType())},
		Redact: func(f console.Field) bool { return slices.Contains(f.Path, "Memo") },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = agent.Close() }()
	c, err := console.New(console.Options{Admin: agent, Hosts: []string{"example.com"}, Authorize: func(*http.Request, string) (string, error) { return "ann", nil }})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	code, page := httpGet(c, "/entities/account%7C7")
	fmt.Println(code, strings.Contains(page, "rent for May"), strings.Contains(page, "(redacted)"))
	// Output: 200 false true
}
