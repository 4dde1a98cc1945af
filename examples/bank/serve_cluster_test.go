// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/plugins/nats"
)

// caller calls the APIs of banks that run. Its connections end with each call.
type caller struct{ client http.Client }

func newCaller(timeout time.Duration) *caller {
	return &caller{http.Client{Timeout: timeout, Transport: &http.Transport{DisableKeepAlives: true}}}
}

// do returns the status and the body of an answer. It returns an error if there is none.
func (c *caller) do(ctx context.Context, method, url, body string) (status int, answer string, err error) {
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	got, err := c.client.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = got.Body.Close() }()
	data, err := io.ReadAll(io.LimitReader(got.Body, 1<<20))
	return got.StatusCode, string(data), err
}

// branchAt returns the state of the cluster as a branch reports it.
func (c *caller) branchAt(ctx context.Context, url string) (known branchBody, err error) {
	status, answer, err := c.do(ctx, http.MethodGet, url+"/branch", "")
	if err != nil {
		return known, err
	}
	if status != http.StatusOK {
		return known, fmt.Errorf("status %d: %s", status, answer)
	}
	return known, json.Unmarshal([]byte(answer), &known)
}

// One process runs three branches, each with an API. After one is removed, the others host its
// accounts. The printed addresses give an operator access to the cluster.
func TestServeOnNodes(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	out, code := make(lineWriter, 100), make(chan int, 1)
	var errout strings.Builder
	go func() {
		code <- run(ctx, []string{"serve", "--nodes", "3", "--state", "ddata", "--journal", "inmem:", "--addr", "127.0.0.1:0", "--stable-after", "5s"}, strings.NewReader(""), out, &errout)
		close(out)
	}()
	var urls []string
	for _, name := range branchNames(3) {
		line := <-out
		url, found := strings.CutPrefix(strings.TrimSpace(line), name+" is open at ")
		if !found {
			t.Fatalf("printed %q, want the address of %s; %s", line, name, errout.String())
		}
		urls = append(urls, url)
	}
	var words []string
	for line := ""; line != "\n" || !slices.Contains(words, "shards"); {
		line = <-out
		words = append(words, strings.Fields(line)...)
	}
	flag := func(name string) string {
		for i, word := range words[:len(words)-1] {
			if word == name {
				return words[i+1]
			}
		}
		t.Fatalf("the word %s is missing in the printed line %v", name, words)
		return ""
	}
	call := newCaller(2 * time.Minute)
	must := func(method, url, body, want string) { // must sends a request that may be repeated
		t.Helper()
		status, answer, err := call.do(t.Context(), method, url, body)
		for patience := time.Now().Add(5 * time.Minute); (err != nil || status >= http.StatusInternalServerError) && time.Now().Before(patience); {
			sleep(t.Context(), 10*time.Millisecond)
			status, answer, err = call.do(t.Context(), method, url, body)
		}
		if err != nil || status != http.StatusOK || !strings.Contains(answer, want) {
			t.Fatalf("%s %s: %d %s, %v; want %s", method, url, status, answer, err, want)
		}
	}
	for i := range 9 {
		must(http.MethodPost, urls[i%3]+"/accounts", fmt.Sprintf(`{"id": %q, "currency": "USD"}`, id(i)), `"balance":"0.00"`)
		must(http.MethodPost, urls[(i+1)%3]+"/accounts/"+id(i)+"/deposits", `{"amount": "5", "currency": "USD", "request_id": "first"}`, `"balance":"5.00"`)
		must(http.MethodGet, urls[(i+2)%3]+"/accounts/"+id(i), "", `"balance":"5.00"`)
	}

	var exported strings.Builder
	for i, name := range branchNames(3) { // each branch exports its own metrics
		status, got, err := call.do(t.Context(), http.MethodGet, urls[i]+"/metrics", "")
		if err != nil || status != http.StatusOK {
			t.Fatalf("the metrics of %s: %d %s, %v", name, status, got, err)
		}
		exported.WriteString(got)
		for _, want := range []string{"refold_cluster_member_count", "refold_sharding_shard_hosted", "refold_ddata_key_count"} {
			if !strings.Contains(got, "\n"+want+"{") {
				t.Errorf("the metrics of %s do not contain %s: %s", name, want, got)
			}
		}
		if n := strings.Count(got, `refold_node_name="`); n != strings.Count(got, `refold_node_name="`+name+`"`) {
			t.Errorf("the metrics of %s contain those of another branch: %s", name, got)
		}
	}
	for _, want := range []string{"refold_command_duration_seconds_count", "refold_ddata_request_duration_seconds_count"} {
		if !strings.Contains(exported.String(), "\n"+want+"{") {
			t.Errorf("no branch exports %s", want)
		}
	}
	for path, want := range map[string]string{
		"entities": "account%7C" + id(0), "entities/account%7C" + id(0): `<div id="state">`, "": "commands per second", "tail": "No event since", "journal": ">account<",
	} {
		must(http.MethodGet, urls[0]+"/console/"+path, "", want)
	}

	operator, err := nats.ConnectOperator(nats.OperatorConfig{
		Access: nats.Access{URLs: []string{flag("--nats")}, TokenFile: flag("--token-file")}, Cluster: flag("--cluster"), Name: "operator",
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = operator.Close() }()
	if err = cluster.NewAdmin(operator).Down(t.Context(), "branch-1", "branch-3"); err != nil {
		t.Fatal(err)
	}
	if line := <-out; line != "branch-3 has ended: cluster: this node was downed\n" {
		t.Errorf("output after the down of branch-3: %q, want \"this node was downed\"", line)
	}
	for i := range 9 {
		must(http.MethodGet, urls[i%2]+"/accounts/"+id(i), "", `"balance":"5.00"`)
	}
	for { // a downed member stays in the view until all other members have seen its status
		known, err := call.branchAt(t.Context(), urls[0])
		if err == nil && len(known.Members) == 2 && known.Coordinator != "" {
			break
		}
		if !sleep(t.Context(), 10*time.Millisecond) {
			t.Fatalf("timed out waiting for 2 members and a coordinator: %+v, error %v", known, err)
		}
	}
	must(http.MethodDelete, urls[0]+"/nodes/branch-2", "", "branch-2 stops without leaving")
	if line := <-out; line != "branch-2 has ended: cluster: this node was stopped\n" {
		t.Errorf("output after the stop of branch-2: %q, want \"this node was stopped\"", line)
	}
	for i := range 9 {
		must(http.MethodGet, urls[0]+"/accounts/"+id(i), "", `"balance":"5.00"`)
	}
	// The server of a crashed branch stays, so that the page can start the branch again.
	if status, answer, err := call.do(t.Context(), http.MethodGet, urls[1]+"/accounts/"+id(0), ""); status != http.StatusServiceUnavailable {
		t.Errorf("the API of branch-2 after its crash: %d %s, %v; want 503", status, answer, err)
	}
	must(http.MethodPost, urls[1]+"/page/restart?branch=branch-2", "", "branch-2 joins the others")
	for i := range 9 {
		must(http.MethodGet, urls[1]+"/accounts/"+id(i), "", `"balance":"5.00"`)
	}
	must(http.MethodPost, urls[1]+"/page/audit", "", ">OK<")
	must(http.MethodPost, urls[1]+"/page/audit", "", `id="console-link"`)
	must(http.MethodGet, urls[1]+"/console/nodes", "", "branch-2")
	stop()
	if got := <-code; got != exitFailed || errout.String() != "bank: branch-3: cluster: this node was downed\n" {
		t.Errorf("exit code %d, standard error %q; want %d and the down of branch-3", got, errout.String(), exitFailed)
	}
}

// A cluster that shuts down as a whole moves no shards.
func TestServeOnNodesStops(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	out, code := make(lineWriter, 100), make(chan int, 1)
	var errout strings.Builder
	go func() {
		code <- run(ctx, []string{"serve", "--nodes", "2", "--journal", "inmem:", "--addr", "127.0.0.1:0"}, strings.NewReader(""), out, &errout)
		close(out)
	}()
	<-out
	stop()
	var last string
	for line := range out {
		last = line
	}
	if got := <-code; got != exitOK || last != "stopped\n" || errout.String() != "" {
		t.Errorf("exit code %d, last line %q, standard error %q; want %d, \"stopped\" and nothing", got, last, errout.String(), exitOK)
	}
}
