// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package adminrpc is the request and reply protocol between operators and nodes. It sends JSON
// objects over transport.AdminClient and defines errors, paging and service names. Packages
// cluster, ddata and sharding each provide one service.
//
// A request is a JSON object whose field "service" is the name of a service, and whose field
// "command" is one of its commands. A request without a service is for package cluster. A reply is
// a JSON object that embeds a Head. The cluster checks the right of each request: see
// cluster.Node.HandleAdmin.
package adminrpc

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strings"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/transport"
)

const (
	// maxError is the maximum length of an error text in a reply, in bytes.
	maxError = 4 << 10
	// maxPages is the maximum number of replies that form one list.
	maxPages = 100_000
)

// Head is embedded in the replies of all services.
type Head struct {
	// Error is the text of the error. If it is not empty, the reply has no result.
	Error string `json:"error,omitempty"`
	// Denied reports that the operator may not send the request.
	Denied bool `json:"denied,omitempty"`
	// NoService reports that the node does not have the requested service.
	NoService bool `json:"no_service,omitempty"`
	// Reason is the key of the error in Service.Errors. It is empty for all other errors.
	Reason string `json:"reason,omitempty"`
	// Node is the replying node in the format of identity.Node.String.
	Node string `json:"node,omitempty"`
	// More reports that the list continues on another page.
	More bool `json:"more,omitempty"`
}

func (h *Head) head() *Head { return h }

// Reply is a pointer to a struct that embeds Head.
type Reply[A any] interface {
	*A
	head() *Head
}

// Service describes a service to its clients and servers.
type Service struct {
	// Package is the name of the Go package. Error texts begin with it.
	Package string
	// Name is the name of the service in requests. Defaults to Package.
	Name string
	// Commands are the commands with the rights that they require.
	Commands map[string]transport.AdminRight
	// Errors are the errors that clients can match, by their reason: a reply carries the reason,
	// and the client looks up the error.
	Errors map[string]error
	// Missing is the error that clients match if a node does not have the service.
	Missing error
}

func (s *Service) reason(err error) string {
	for reason, known := range s.Errors { // at most one of them matches
		if errors.Is(err, known) {
			return reason
		}
	}
	return ""
}

// Serve returns a handler that decodes a request, calls f and encodes its reply. If f returns an
// error, the handler replaces the Head of the reply with the error; other fields are sent as f
// returns them.
func Serve[Q, A any, P Reply[A]](s *Service, f func(ctx context.Context, operator string, q *Q) (A, error)) transport.AdminHandler {
	return func(ctx context.Context, operator, _ string, _ transport.AdminRight, request []byte) []byte {
		var q Q
		var reply A
		err := json.Unmarshal(request, &q)
		if err == nil {
			reply, err = f(ctx, operator, &q)
		}
		if err != nil {
			*P(&reply).head() = s.failure(err)
		}
		return encode(reply)
	}
}

// Refuse returns a reply with an error.
func (s *Service) Refuse(err error) []byte { return encode(s.failure(err)) }

func (s *Service) failure(err error) Head {
	text := err.Error()
	return Head{
		Error: text[:min(len(text), maxError)], Reason: s.reason(err), NoService: s.Missing != nil && errors.Is(err, s.Missing),
		Denied: errors.Is(err, transport.ErrDenied),
	}
}

func encode(reply any) []byte {
	b, err := json.Marshal(reply)
	if err != nil {
		return []byte(`{"error":"the reply cannot be encoded"}`)
	}
	return b
}

// Error is an error that a node reported to an operator. It matches the error in Service.Errors for
// the reason in the reply, or transport.ErrDenied.
type Error struct {
	Package string
	Command string
	// Text is the error as the node reported it.
	Text string

	match error
}

func (e *Error) Error() string {
	return fmt.Sprintf("%s: %s: the node reports: %s", e.Package, e.Command, strings.TrimPrefix(e.Text, e.Package+": "))
}

// Unwrap returns the matching error of the service, nil if there is none.
func (e *Error) Unwrap() error { return e.match }

// Client sends requests to one service. It is safe for concurrent use.
type Client struct {
	admin   transport.AdminClient
	service *Service
}

// NewClient returns a client. The caller closes admin.
func NewClient(admin transport.AdminClient, s *Service) *Client { return &Client{admin, s} }

// Ask sends a request to the named node, or to any node if the name is empty, and returns the
// reply. command is the command of the request. It determines the right that the request uses. If
// the node reports an error, Ask returns the reply together with an *Error; other errors are those
// of transport.AdminClient.
func Ask[A any, P Reply[A]](ctx context.Context, c *Client, node, command string, request any) (*A, error) {
	b, err := json.Marshal(request)
	if err != nil {
		return nil, fmt.Errorf("%s: %s: %w", c.service.Package, command, err)
	}
	if b, err = c.admin.Ask(ctx, cmp.Or(c.service.Name, c.service.Package), c.service.Commands[command], node, b); err != nil {
		return nil, fmt.Errorf("%s: %s: %w", c.service.Package, command, err)
	}
	reply := new(A)
	if err := json.Unmarshal(b, reply); err != nil {
		return nil, fmt.Errorf("%s: %s: decode the reply: %w", c.service.Package, command, err)
	}
	h := P(reply).head()
	if h.Error == "" {
		return reply, nil
	}
	e := &Error{Package: c.service.Package, Command: command, Text: h.Error, match: c.service.Errors[h.Reason]}
	if h.Denied {
		e.match = transport.ErrDenied
	}
	if h.NoService {
		e.match = c.service.Missing
		if e.match != nil && h.Node == "" && !strings.HasPrefix(e.Text, e.match.Error()) { // the node does not run the package
			e.Text = e.match.Error()
		}
	}
	return reply, e
}

// Pages yields the replies of a list, page by page. It stops after a reply without More, or after
// it yields an error. While it handles a page, the consumer must set the start of the next page in
// the request. All pages come from the node that sent the first one.
func Pages[Q comparable, A any, P Reply[A]](ctx context.Context, c *Client, node, command string, request *Q) iter.Seq2[*A, error] {
	return func(yield func(*A, error) bool) {
		for range maxPages {
			before := *request
			reply, err := Ask[A, P](ctx, c, node, command, before)
			if err != nil {
				yield(nil, err)
				return
			}
			h := P(reply).head()
			if !yield(reply, nil) || !h.More {
				return
			}
			if *request == before { // the consumer made no progress, so the loop would not end
				yield(nil, c.Malformed(command, "an empty page"))
				return
			}
			if node, err = c.Sender(command, h.Node, node); err != nil {
				yield(nil, err)
				return
			}
		}
		yield(nil, c.Malformed(command, "too many pages"))
	}
}

// Sender returns the name of the node that sent a reply, as the target of further requests. If the
// reply does not name its node, Sender returns asked.
func (c *Client) Sender(command, node, asked string) (string, error) {
	if node == "" {
		return asked, nil
	}
	n, err := identity.Parse(node)
	if err != nil {
		return "", fmt.Errorf("%s: %s: reply of node %.150q: %w", c.service.Package, command, node, err)
	}
	return n.Name, nil
}

// Malformed returns an error for a reply that violates the protocol.
func (c *Client) Malformed(command, problem string) error {
	return fmt.Errorf("%s: %s: invalid reply: %s", c.service.Package, command, problem)
}
