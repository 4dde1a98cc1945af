// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/adminrpc"
	"github.com/refold-io/refold/transport"
)

// adminCommand names a request of an operator. All commands are idempotent.
type adminCommand string

const (
	adminState   adminCommand = "state"
	adminLeave   adminCommand = "leave"
	adminDown    adminCommand = "down"
	adminPrepare adminCommand = "prepare-for-shutdown"
)

type adminRequest struct {
	Command adminCommand `json:"command"`
	// Node is the member that is to leave or to be downed. It is a name, or a name and a UID in the
	// format of identity.Node.String.
	Node string `json:"node,omitempty"`
	// After is the member after which the page of members begins.
	After string `json:"after,omitempty"`
}

type adminReply struct {
	adminrpc.Head

	// NotMember reports that the error is ErrNotMember.
	NotMember bool     `json:"not_member,omitempty"`
	State     *Summary `json:"state,omitempty"`
}

var adminService = adminrpc.Service{Package: "cluster", Missing: errNoService} //nolint:gochecknoglobals // constant

// errNoService is reported for requests to a service that the node does not have.
var errNoService = errors.New("unknown service")

// Summary is the state of a cluster as one node sees it, for operators. Nodes are in the format of
// identity.Node.String.
type Summary struct {
	Cluster string `json:"cluster"`
	// Self is the reporting node. Since is the time of its start.
	Self  string    `json:"self"`
	Since time.Time `json:"since"`
	// Connected reports that the node receives its own messages through the network. Suspended
	// reports that the node hosts no singletons and shards, because it was disconnected for too
	// long or waits for a downing decision or for the confirmation of its membership.
	Connected bool `json:"connected"`
	Suspended bool `json:"suspended,omitempty"`
	// Leader is empty if the cluster has no leader.
	Leader      string            `json:"leader,omitempty"`
	RoleLeaders map[string]string `json:"role_leaders,omitempty"`
	// Strategy is the downing strategy.
	Strategy string `json:"strategy"`
	// Converged reports that all members have the same state.
	Converged bool            `json:"converged"`
	Members   []SummaryMember `json:"members"`
	// More reports that more members follow the last one.
	More bool `json:"more,omitempty"`
}

// SummaryMember is a member in a Summary.
type SummaryMember struct {
	Node   string   `json:"node"`
	Status string   `json:"status"`
	Roles  []string `json:"roles,omitempty"`
	// Version is the version of the application.
	Version string `json:"version"`
	// UpNumber is smaller for older members. It is 0 if the member is not Up yet.
	UpNumber int32 `json:"up_number,omitempty"`
	// Unreachable reports that at least one member finds this member unreachable. UnreachableTo are
	// at most 10 of these observers.
	Unreachable   bool     `json:"unreachable,omitempty"`
	UnreachableTo []string `json:"unreachable_to,omitempty"`
	// Terminated reports that the member is known to be dead.
	Terminated bool `json:"terminated,omitempty"`
	// Seen reports that the member has the same state as the reporting node.
	Seen bool `json:"seen"`
}

const (
	adminPage    = 2000      // members of a page, at most
	adminBytes   = 256 << 10 // of a page, approximately
	maxObservers = 10        // of an unreachable member
)

// serveAdmin makes the node available to operators once it is a member.
func (n *Node) serveAdmin() {
	if s, err := n.until(n.base, func(s *State) bool { return s.Joined || s.Stopped }); err != nil || s.Stopped {
		return
	}
	if err := n.transport.HandleAdmin(n.serviceOf(adminrpc.Serve(&adminService, n.admin))); err != nil && !errors.Is(err, errors.ErrUnsupported) {
		n.out.Log(slog.LevelWarn, "admin: operators cannot reach this node", slog.Any("error", err))
	}
}

// HandleAdmin sets the handler of operators' requests for a service. It replaces an earlier
// handler; nil removes the handler. A request is a JSON object with the name of the service in the
// field "service". A reply is a JSON object with errors in the field "error". Packages that build
// on this one use HandleAdmin. Operators can reach a node once it is a member.
func (n *Node) HandleAdmin(service string, h transport.AdminHandler) { n.services.Store(service, h) }

// serviceOf returns a handler that dispatches requests by service. Requests without a service go to
// own.
func (n *Node) serviceOf(own transport.AdminHandler) transport.AdminHandler {
	return func(ctx context.Context, operator string, request []byte) []byte {
		var to struct {
			Service string `json:"service"`
		}
		if json.Unmarshal(request, &to) != nil || to.Service == "" {
			return own(ctx, operator, request)
		}
		found, _ := n.services.Load(to.Service)
		h, _ := found.(transport.AdminHandler)
		if h == nil {
			h = adminrpc.Serve(&adminService, func(context.Context, string, *adminRequest) (adminReply, error) {
				return adminReply{}, invalid("%w: %.100q", errNoService, to.Service)
			})
		}
		return h(ctx, operator, request)
	}
}

func (n *Node) admin(ctx context.Context, operator string, r *adminRequest) (reply adminReply, err error) {
	if r.Command != adminState {
		n.out.Log(slog.LevelInfo, "admin: command received", slog.String("operator", operator), slog.String("command", string(r.Command)), slog.String("member", r.Node))
	}
	switch r.Command {
	case adminState:
		reply.State, err = n.Summary(r.After)
	case adminLeave, adminDown:
		var member identity.Node
		if member, err = parseMember(r.Node); err != nil {
			break
		}
		if r.Command == adminLeave {
			err = n.Leave(ctx, member)
		} else {
			err = n.Down(ctx, member)
		}
	case adminPrepare:
		err = n.PrepareForShutdown(ctx)
	default:
		err = invalid("unknown command %.100q", string(r.Command))
	}
	reply.NotMember = errors.Is(err, ErrNotMember)
	return reply, err
}

func parseMember(s string) (identity.Node, error) {
	if n, err := identity.Parse(s); err == nil {
		return n, nil
	}
	if err := identity.CheckName(s); err != nil {
		return identity.Node{}, invalid("node: %w", err)
	}
	return identity.Node{Name: s}, nil
}

// Summary returns the state of the cluster as this node sees it. It lists the members that sort
// after the member in the argument, or all members if the argument is empty. The list has at most
// 2,000 members and about 256 KiB. The error matches ErrInvalid if the argument does not have the
// format of identity.Node.String.
func (n *Node) Summary(after string) (*Summary, error) {
	var from identity.Node
	if after != "" {
		var err error
		if from, err = identity.Parse(after); err != nil {
			return nil, invalid("member: %w", err)
		}
	}
	s := n.events.current()
	out := &Summary{
		Cluster: n.cfg.Cluster, Self: n.self.String(), Since: n.start, Connected: s.Connected, Suspended: s.Suspended,
		Strategy: n.strategy, Converged: len(s.Seen) == len(s.Members) && len(s.Members) > 0,
	}
	if !s.Leader.IsZero() {
		out.Leader = s.Leader.String()
	}
	if len(s.RoleLeaders) > 0 {
		out.RoleLeaders = map[string]string{}
	}
	for _, r := range s.RoleLeaders {
		out.RoleLeaders[r.Role] = r.Node.String()
	}
	size, observed := 0, map[identity.Node][]Observation{}
	for _, o := range s.Observations() {
		observed[o.Subject] = append(observed[o.Subject], o)
	}
	for i := range s.Members {
		switch m := &s.Members[i]; {
		case after != "" && m.Node.Compare(from) <= 0:
		case len(out.Members) == adminPage || size > adminBytes:
			out.More = true
		default:
			out.Members = append(out.Members, summaryOf(s, m, observed[m.Node]))
			size += sizeOf(&out.Members[len(out.Members)-1])
		}
	}
	return out, nil
}

func summaryOf(s *State, m *Member, observed []Observation) SummaryMember {
	out := SummaryMember{
		Node: m.Node.String(), Status: m.Status.String(), Roles: m.Roles, Version: m.Version.String(),
		Unreachable: !s.Reachable(m.Node), Seen: contains(s.Seen, m.Node),
	}
	if m.UpNumber != identity.NeverUp {
		out.UpNumber = m.UpNumber
	}
	for i, o := range observed {
		out.Terminated = out.Terminated || o.Terminated
		if i < maxObservers {
			out.UnreachableTo = append(out.UnreachableTo, o.Observer.String())
		}
	}
	return out
}

func sizeOf(m *SummaryMember) int {
	size := 128 + len(m.Node) + len(m.Version)
	for _, texts := range [][]string{m.Roles, m.UnreachableTo} {
		for _, t := range texts {
			size += len(t) + 4
		}
	}
	return size
}

// String returns the state in one line.
func (s *Summary) String() string {
	return fmt.Sprintf("%s of %s: %d members, leader %s", s.Self, s.Cluster, len(s.Members), s.Leader)
}

// Admin sends requests of an operator to the nodes of a cluster. Its methods are safe for
// concurrent use. An error that a node reports is returned with the node's text. It matches
// ErrNotMember where a method documents this. Other errors are those of transport.AdminClient.
type Admin struct{ client *adminrpc.Client }

// NewAdmin returns an Admin that uses a connection of a plugin, such as nats.ConnectOperator. The
// Admin does not close the connection.
func NewAdmin(client transport.AdminClient) *Admin {
	return &Admin{adminrpc.NewClient(client, &adminService)}
}

// State returns the state of the cluster as the named node sees it. If the name is empty, any node
// may reply.
func (a *Admin) State(ctx context.Context, node string) (*Summary, error) {
	var all *Summary
	request := adminRequest{Command: adminState}
	for reply, err := range adminrpc.Pages[adminRequest, adminReply](ctx, a.client, node, string(adminState), &request) {
		switch {
		case err != nil:
			return nil, err
		case reply.State == nil:
			return nil, a.client.Malformed(string(adminState), "no state")
		case all == nil:
			all = reply.State
		default:
			all.Members = append(all.Members, reply.State.Members...)
		}
		if n := len(reply.State.Members); n > 0 {
			request.After = reply.State.Members[n-1].Node
		}
		// Replies of this service have the sender and the page mark in the state.
		reply.Node, reply.More = reply.State.Self, reply.State.More
	}
	all.More = false
	return all, nil
}

// Leave lets a member leave the cluster, as Node.Leave does. The member is a name, or a name and a
// UID in the format of identity.Node.String. The request is sent to the named node, or to any node
// if the name is empty. The error matches ErrNotMember if there is no such member.
func (a *Admin) Leave(ctx context.Context, node, member string) error {
	return a.command(ctx, node, adminRequest{Command: adminLeave, Node: member})
}

// Down declares a member dead, as Node.Down does. The arguments and errors are those of Leave.
func (a *Admin) Down(ctx context.Context, node, member string) error {
	return a.command(ctx, node, adminRequest{Command: adminDown, Node: member})
}

// PrepareForShutdown announces that the whole cluster is about to stop, as Node.PrepareForShutdown
// does.
func (a *Admin) PrepareForShutdown(ctx context.Context, node string) error {
	return a.command(ctx, node, adminRequest{Command: adminPrepare})
}

func (a *Admin) command(ctx context.Context, node string, r adminRequest) error {
	reply, err := adminrpc.Ask[adminReply](ctx, a.client, node, string(r.Command), r)
	if err != nil && reply != nil && reply.NotMember {
		return &notMemberError{err}
	}
	return err
}

type notMemberError struct{ error }

func (e *notMemberError) Unwrap() []error { return []error{e.error, ErrNotMember} }
