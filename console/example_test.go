// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package console_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/refold-io/refold/console"
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
