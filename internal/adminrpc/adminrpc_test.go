// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package adminrpc_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/refold-io/refold/internal/adminrpc"
	"github.com/refold-io/refold/transport"
)

var (
	errMissing = errors.New("shelf: no shelf")
	errEmpty   = errors.New("shelf: it is empty")
)

var service = adminrpc.Service{Package: "shelf", Errors: map[string]error{"empty": errEmpty}, Missing: errMissing}

type request struct {
	Service string `json:"service"`
	Command string `json:"command"`
	After   int    `json:"after,omitempty"`
}

type reply struct {
	adminrpc.Head

	Books []int `json:"books,omitempty"`
}

// nodes is a transport.AdminClient. Its nodes reply with a handler. It records the receivers of
// requests.
type nodes struct {
	handler transport.AdminHandler
	asked   []string
}

func (n *nodes) Ask(ctx context.Context, service string, right transport.AdminRight, node string, request []byte) ([]byte, error) {
	n.asked = append(n.asked, node)
	return n.handler(ctx, "root", service, right, request), nil
}

func (*nodes) Close() error { return nil }

func serve(f func(*request) (reply, error)) (*nodes, *adminrpc.Client) {
	n := &nodes{handler: adminrpc.Serve(&service, func(_ context.Context, operator string, r *request) (reply, error) {
		if operator != "root" {
			return reply{}, fmt.Errorf("the operator is %q", operator)
		}
		return f(r)
	})}
	return n, adminrpc.NewClient(n, &service)
}

func TestAsk(t *testing.T) {
	t.Parallel()
	_, c := serve(func(r *request) (reply, error) {
		switch r.Command {
		case "list":
			return reply{Books: []int{7}}, nil
		case "empty":
			return reply{Head: adminrpc.Head{Node: "a", More: true}, Books: []int{8}}, fmt.Errorf("look: %w", errEmpty)
		case "missing":
			return reply{}, fmt.Errorf("%w: %q", errMissing, r.Command)
		case "long":
			return reply{}, errors.New(strings.Repeat("x", 10_000))
		}
		return reply{}, errors.New("shelf: unknown command")
	})
	ask := func(command string) (*reply, error) {
		return adminrpc.Ask[reply](t.Context(), c, "a", command, request{Service: "shelf", Command: command})
	}
	if r, err := ask("list"); err != nil || !slices.Equal(r.Books, []int{7}) {
		t.Errorf("the reply to list is %v, %v, want book 7", r, err)
	}
	r, err := ask("empty")
	var failed *adminrpc.Error
	if !errors.Is(err, errEmpty) || errors.Is(err, errMissing) || !errors.As(err, &failed) || failed.Text != "look: shelf: it is empty" {
		t.Errorf("Ask returned %v, want errEmpty", err)
	}
	if r.Node != "" || r.More || len(r.Books) != 1 {
		t.Errorf("the reply with an error is %+v, want its books without the node and More", r)
	}
	if _, err := ask("missing"); !errors.Is(err, errMissing) {
		t.Errorf("Ask of a node without the service: %v, want errMissing", err)
	}
	if _, err := ask("other"); err == nil || err.Error() != "shelf: other: the node reports: unknown command" {
		t.Errorf("Ask with an unknown error: %v, want the text of the node", err)
	}
	if _, err := ask("long"); len(err.Error()) > 5000 {
		t.Errorf("the error has %d bytes, want at most 5000", len(err.Error()))
	}
	if _, err := adminrpc.Ask[reply](t.Context(), c, "a", "broken", "no object"); err == nil || errors.Is(err, errMissing) {
		t.Errorf("Ask with a request that cannot be decoded: %v, want an error", err)
	}
}

func TestPages(t *testing.T) {
	t.Parallel()
	n, c := serve(func(r *request) (reply, error) {
		return reply{Head: adminrpc.Head{Node: "b#1", More: r.After < 3}, Books: []int{r.After + 1}}, nil
	})
	r := request{Command: "list"}
	var got []int
	for reply, err := range adminrpc.Pages[request, reply](t.Context(), c, "", "list", &r) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, reply.Books...)
		r.After = reply.Books[0]
	}
	if !slices.Equal(got, []int{1, 2, 3, 4}) || !slices.Equal(n.asked, []string{"", "b", "b", "b"}) {
		t.Errorf("got the elements %v from the nodes %q, want 1 to 4 from any node and then b", got, n.asked)
	}
	var failed error
	for _, err := range adminrpc.Pages[request, reply](t.Context(), c, "", "list", &request{}) {
		failed = err
	}
	if failed == nil || !strings.Contains(failed.Error(), "empty page") {
		t.Errorf("a list without an end: %v, want an error about the empty page", failed)
	}
}
