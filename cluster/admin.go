// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/membership"
	"github.com/refold-io/refold/transport"
)

// AdminCommand is what an operator asks of a node.
type AdminCommand string

// The commands. All of them can be repeated.
const (
	// AdminState asks what the node knows.
	AdminState AdminCommand = "state"
	// AdminLeave and AdminDown are Node.Leave and Node.Down.
	AdminLeave AdminCommand = "leave"
	AdminDown  AdminCommand = "down"
	// AdminPrepare is Node.PrepareForShutdown.
	AdminPrepare AdminCommand = "prepare-for-shutdown"
)

// AdminRequest is a request of an operator, in JSON.
type AdminRequest struct {
	Command AdminCommand `json:"command"`
	// Node is who is to leave or is down: a name, or a name and a UID as identity.Node.String writes it.
	Node string `json:"node,omitempty"`
	// After is the node behind which the members of the answer begin: there may be too many for one.
	After string `json:"after,omitempty"`
}

// AdminAnswer is the answer, in JSON. What has gone wrong is in Error; then the rest is empty.
type AdminAnswer struct {
	Error string `json:"error,omitempty"`
	// NotMember says that the error is ErrNotMember.
	NotMember bool `json:"not_member,omitempty"`
	// NoService says that nobody answers for the service: see Node.HandleAdmin.
	NoService bool     `json:"no_service,omitempty"`
	State     *Summary `json:"state,omitempty"`
}

// Summary is what a node knows of its cluster, as operators see it. Nodes are written as identity.Node.String does.
type Summary struct {
	Cluster string `json:"cluster"`
	// Self is the node that says this, Since when it was started.
	Self  string    `json:"self"`
	Since time.Time `json:"since"`
	// Connected says that it hears itself through the network, Suspended that it hosts nothing since it did not.
	Connected bool `json:"connected"`
	Suspended bool `json:"suspended,omitempty"`
	// Leader is empty if there is none.
	Leader      string            `json:"leader,omitempty"`
	RoleLeaders map[string]string `json:"role_leaders,omitempty"`
	// Strategy says who survives when some can't be reached.
	Strategy string `json:"strategy"`
	// Converged says that all members know the same.
	Converged bool            `json:"converged"`
	Members   []SummaryMember `json:"members"`
	// More says that there are more members, behind the last one.
	More bool `json:"more,omitempty"`
}

// SummaryMember is a member.
type SummaryMember struct {
	Node   string   `json:"node"`
	Status string   `json:"status"`
	Roles  []string `json:"roles,omitempty"`
	// Version is that of its application.
	Version string `json:"version"`
	// UpNumber is the smaller the older the member is; 0 if it was not Up yet.
	UpNumber int32 `json:"up_number,omitempty"`
	// UnreachableTo are those who find it unreachable, at most 10.
	Unreachable   bool     `json:"unreachable,omitempty"`
	UnreachableTo []string `json:"unreachable_to,omitempty"`
	// Terminated says that it is known to be dead.
	Terminated bool `json:"terminated,omitempty"`
	// Seen says that it knows what the answering node knows.
	Seen bool `json:"seen"`
}

const (
	adminPage     = 2000 // members, and
	adminBytes    = 256 << 10
	maxObservers  = 10
	maxAdminError = 4 << 10
)

// serveAdmin lets operators find this node once it is a member.
func (n *Node) serveAdmin() {
	if s, err := n.until(n.base, func(s *State) bool { return s.Joined || s.Stopped }); err != nil || s.Stopped {
		return
	}
	if err := n.transport.HandleAdmin(n.admin); err != nil && !errors.Is(err, errors.ErrUnsupported) {
		n.outlet.write(slog.LevelWarn, "operators can't reach this node", slog.Any("error", err))
	}
}

// admin answers an operator.
func (n *Node) admin(ctx context.Context, operator string, request []byte) []byte {
	var answer AdminAnswer
	var r AdminRequest
	serve, err := n.services.of(request)
	if serve != nil {
		return serve(ctx, operator, request)
	}
	if err == nil {
		err = json.Unmarshal(request, &r)
	}
	if err == nil {
		if r.Command != AdminState {
			n.outlet.write(slog.LevelInfo, "an operator commands", slog.String("operator", operator), slog.String("command", string(r.Command)), slog.String("about", r.Node))
		}
		answer.State, err = n.administer(ctx, r)
	}
	if err != nil {
		text := err.Error()
		answer = AdminAnswer{Error: text[:min(len(text), maxAdminError)], NotMember: errors.Is(err, ErrNotMember), NoService: errors.Is(err, errNoService)}
	}
	b, err := json.Marshal(answer)
	if err != nil {
		return []byte(`{"error":"the answer can't be encoded"}`)
	}
	return b
}

func (n *Node) administer(ctx context.Context, r AdminRequest) (*Summary, error) {
	who, err := adminNode(r)
	if err != nil {
		return nil, err
	}
	switch r.Command {
	case AdminState:
		return n.Summary(r.After)
	case AdminLeave:
		return nil, n.Leave(ctx, who)
	case AdminDown:
		return nil, n.Down(ctx, who)
	case AdminPrepare:
		return nil, n.PrepareForShutdown(ctx)
	}
	return nil, invalid("command %.100q", string(r.Command))
}

// adminNode returns the node that a request is about.
func adminNode(r AdminRequest) (identity.Node, error) {
	if r.Command != AdminLeave && r.Command != AdminDown {
		return identity.Node{}, nil
	}
	if who, err := identity.Parse(r.Node); err == nil {
		return who, nil
	}
	if err := identity.CheckName(r.Node); err != nil {
		return identity.Node{}, invalid("node: %w", err)
	}
	return identity.Node{Name: r.Node}, nil
}

// Summary returns what the node knows, as an operator sees it, with the first members behind one, or in
// all if that is empty: at most 2,000, or as many as have room in 256 KiB. The error matches ErrInvalid.
func (n *Node) Summary(after string) (*Summary, error) {
	var from identity.Node
	if after != "" {
		var err error
		if from, err = identity.Parse(after); err != nil {
			return nil, invalid("member: %w", err)
		}
	}
	s := n.hub.current()
	out := &Summary{
		Cluster: n.cfg.Cluster, Self: n.self.String(), Since: n.start, Connected: s.Connected, Suspended: s.Suspended,
		Strategy: n.strategy, Converged: len(s.Seen) == len(s.Members) && len(s.Members) > 0,
	}
	if !s.Leader.IsZero() {
		out.Leader = s.Leader.String()
	}
	for _, r := range s.RoleLeaders {
		if out.RoleLeaders == nil {
			out.RoleLeaders = map[string]string{}
		}
		out.RoleLeaders[r.Role] = r.Node.String()
	}
	size, finds := 0, observers(s)
	for i := range s.Members {
		switch m := &s.Members[i]; {
		case after != "" && m.Node.Compare(from) <= 0:
		case len(out.Members) == adminPage || size > adminBytes:
			out.More = true
		default:
			out.Members = append(out.Members, summaryOf(s, m, finds[m.Node]))
			size += sizeOf(&out.Members[len(out.Members)-1])
		}
	}
	return out, nil
}

// observers returns, for each node, some of those who find it unreachable.
func observers(s *State) map[identity.Node][]string {
	finds := map[identity.Node][]string{}
	s.reachability.Bad(func(observer identity.Node, r membership.Record) {
		if by := finds[r.Subject]; len(by) < maxObservers {
			finds[r.Subject] = append(by, observer.String())
		}
	})
	return finds
}

func summaryOf(s *State, m *Member, by []string) SummaryMember {
	out := SummaryMember{
		Node: m.Node.String(), Status: m.Status.String(), Roles: m.Roles, Version: m.Version.String(),
		Unreachable: !s.Reachable(m.Node), UnreachableTo: by, Seen: s.seenBy(m.Node),
	}
	if m.UpNumber != membership.NeverUp {
		out.UpNumber = m.UpNumber
	}
	if len(by) > 0 {
		out.Terminated = s.reachability.Of(m.Node, nil) == membership.Terminated
	}
	return out
}

// sizeOf returns about how many bytes a member takes.
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

// maxAdminPages is how many answers a state may be made of.
const maxAdminPages = 1000

// Admin asks nodes on behalf of an operator, who is no node. Its methods are safe for concurrent use.
type Admin struct{ asker transport.AdminClient }

// NewAdmin returns an Admin that asks through what a plugin offers, such as nats.ConnectOperator. That stays the caller's.
func NewAdmin(asker transport.AdminClient) *Admin { return &Admin{asker} }

// State returns what a node knows, or any node if the name is empty. Errors are those of transport.AdminClient, or what the node says.
func (a *Admin) State(ctx context.Context, node string) (*Summary, error) {
	answer, err := a.ask(ctx, node, AdminRequest{Command: AdminState})
	if err != nil {
		return nil, err
	}
	all := answer.State
	for range maxAdminPages {
		if all == nil || !all.More || len(all.Members) == 0 {
			break
		}
		self, err := identity.Parse(all.Self)
		if err != nil {
			return nil, fmt.Errorf("cluster: the answer of %.150q: %w", all.Self, err)
		}
		next, err := a.ask(ctx, self.Name, AdminRequest{Command: AdminState, After: all.Members[len(all.Members)-1].Node})
		if err != nil {
			return nil, err
		}
		if next.State == nil {
			break
		}
		all.Members, all.More = append(all.Members, next.State.Members...), next.State.More
	}
	if all == nil {
		return nil, errors.New("cluster: the node has given no state")
	}
	return all, nil
}

// Leave lets a member leave: see Node.Leave. Who is a name, or a name and a UID as identity.Node.String writes it. It is asked of the node with
// a name, or of any if that is empty. The error matches ErrNotMember if there is no such member.
func (a *Admin) Leave(ctx context.Context, node, who string) error {
	_, err := a.ask(ctx, node, AdminRequest{Command: AdminLeave, Node: who})
	return err
}

// Down says that a member is dead: see Node.Down. The rest is as in Leave.
func (a *Admin) Down(ctx context.Context, node, who string) error {
	_, err := a.ask(ctx, node, AdminRequest{Command: AdminDown, Node: who})
	return err
}

// PrepareForShutdown announces that the whole cluster is going to stop: see Node.PrepareForShutdown.
func (a *Admin) PrepareForShutdown(ctx context.Context, node string) error {
	_, err := a.ask(ctx, node, AdminRequest{Command: AdminPrepare})
	return err
}

func (a *Admin) ask(ctx context.Context, node string, r AdminRequest) (*AdminAnswer, error) {
	request, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("cluster: %s: %w", r.Command, err)
	}
	b, err := a.asker.Ask(ctx, node, request)
	if err != nil {
		return nil, fmt.Errorf("cluster: ask for %s: %w", r.Command, err)
	}
	var answer AdminAnswer
	if err := json.Unmarshal(b, &answer); err != nil {
		return nil, fmt.Errorf("cluster: the answer to %s can't be read: %w", r.Command, err)
	}
	if answer.Error != "" {
		return nil, &AdminError{Command: r.Command, Text: answer.Error, notMember: answer.NotMember}
	}
	return &answer, nil
}

// AdminError is what a node says that could not do what it was asked.
type AdminError struct {
	Command AdminCommand
	Text    string

	notMember bool
}

func (e *AdminError) Error() string {
	return fmt.Sprintf("cluster: %s: the node says: %s", e.Command, e.Text)
}

// Is reports whether the error is ErrNotMember.
func (e *AdminError) Is(target error) bool { return e.notMember && target == ErrNotMember }

var errNoService = errors.New("this node has no such service")

// adminServices are who answers operators about what stands on this package.
type adminServices struct {
	mu sync.RWMutex
	by map[string]transport.AdminHandler
}

// of returns who answers a request, nil if that is this package.
func (s *adminServices) of(request []byte) (transport.AdminHandler, error) {
	var to struct {
		Service string `json:"service"`
	}
	if json.Unmarshal(request, &to) != nil || to.Service == "" {
		return nil, nil //nolint:nilnil // the rest is checked by this package
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if h := s.by[to.Service]; h != nil {
		return h, nil
	}
	return nil, invalid("%w: %.100q", errNoService, to.Service)
}

// HandleAdmin sets who answers those requests of operators that are JSON objects with this name in a field "service", in place
// of an earlier handler; nil answers none. It is for packages that stand on this one. An answer is a JSON object, which says in a
// field "error" what has gone wrong. Operators reach a node once it is a member.
func (n *Node) HandleAdmin(service string, h transport.AdminHandler) {
	n.services.mu.Lock()
	defer n.services.mu.Unlock()
	if n.services.by == nil {
		n.services.by = map[string]transport.AdminHandler{}
	}
	n.services.by[service] = h
}
