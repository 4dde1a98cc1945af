// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/adminrpc"
	"github.com/refold-io/refold/internal/panics"
	"github.com/refold-io/refold/transport"
)

// adminCommand names a request of an operator. All commands are idempotent.
type adminCommand string

const (
	adminState      adminCommand = "state"
	adminSingletons adminCommand = "singletons"
	adminJoin       adminCommand = "join"
	adminLeave      adminCommand = "leave"
	adminDown       adminCommand = "down"
	adminPrepare    adminCommand = "prepare-for-shutdown"
)

type adminRequest struct {
	Command adminCommand `json:"command"`
	// Node is the member that is to leave or to be downed. It is a name, or a name and a UID in the
	// format of identity.Node.String. For the command join, it is the name of the seed.
	Node string `json:"node,omitempty"`
	// After is the member or the name of the singleton after which the page begins.
	After string `json:"after,omitempty"`
}

type adminReply struct {
	adminrpc.Head

	// NotMember reports that the error is ErrNotMember.
	NotMember  bool                `json:"not_member,omitempty"`
	State      *Summary            `json:"state,omitempty"`
	Singletons []reportedSingleton `json:"singletons,omitempty"`
}

// ownService is the name of the service of this package. Its requests may omit the name.
const ownService = "cluster"

func newAdminService() *adminrpc.Service {
	return &adminrpc.Service{
		Package: ownService, Missing: errNoService,
		Commands: map[string]transport.AdminRight{
			string(adminState): transport.AdminRead, string(adminSingletons): transport.AdminRead, string(adminJoin): transport.AdminAct,
			string(adminLeave): transport.AdminAct, string(adminDown): transport.AdminAct, string(adminPrepare): transport.AdminAct,
		},
	}
}

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
	adminPage  = 2000      // members of a page, at most
	adminBytes = 256 << 10 // of a page, approximately
	// maxLoggedRequest is the number of bytes of a request in a log line.
	maxLoggedRequest = 1 << 10
	maxObservers     = 10 // of an unreachable member
)

// serveAdmin makes the node available to operators once it is a member. A node without seeds is
// available before, but only under its name: an operator may order it to join.
func (n *Node) serveAdmin() {
	own := newAdminService()
	n.HandleAdmin(ownService, own.Commands, adminrpc.Serve(own, n.admin))
	if len(n.cfg.Seeds) == 0 {
		n.admitOperators(n.transport.HandleNamedAdmin)
	}
	if s, err := n.until(n.base, func(s *State) bool { return s.Joined || s.Stopped }); err != nil || s.Stopped {
		return
	}
	n.admitOperators(n.transport.HandleAdmin)
}

func (n *Node) admitOperators(handle func(transport.AdminHandler) error) {
	if err := handle(n.handleAdmin); err != nil && !errors.Is(err, errors.ErrUnsupported) {
		n.out.Log(slog.LevelWarn, "admin: operators cannot reach this node", slog.Any("error", err))
	}
}

// OperatorRequest describes a request of an operator: see Config.Authorize.
type OperatorRequest struct {
	// Operator is the name of the operator, as the carrier proves it.
	Operator string
	// Service is "cluster", "ddata", "sharding", those of a console ("inspect", "projection",
	// "runtime"), or another service of Node.HandleAdmin.
	Service string
	// Command is the command, such as "state" or "down". Right is the right that it requires.
	Command string
	Right   transport.AdminRight
}

// adminHandler handles the requests for a service.
type adminHandler struct {
	commands map[string]transport.AdminRight
	handle   transport.AdminHandler
}

// HandleAdmin sets the handler of operators' requests for a service. It replaces an earlier
// handler; nil removes the handler. A request is a JSON object with the name of the service in the
// field "service" and one of the commands in the field "command". A reply is a JSON object with
// errors in the field "error". Packages that build on this one use HandleAdmin. The service
// "cluster" is that of this package. The name of a service has the alphabet of a node's name.
// Operators can reach a node once it is a member. They can reach a node without Config.Seeds from
// its start, under its name.
//
// The handler receives a request only if it was sent to the service, has one of the commands, uses
// the right that this command requires, and Config.Authorize permits it. The node writes a log line
// for each request whose command requires transport.AdminAct, and one line a minute for reads of
// the same kind.
func (n *Node) HandleAdmin(service string, commands map[string]transport.AdminRight, h transport.AdminHandler) {
	if h == nil {
		n.services.Delete(service)
		return
	}
	n.services.Store(service, adminHandler{maps.Clone(commands), h})
}

// AdminClient returns a client whose requests this node handles as those of an operator, without a
// network. Config.Authorize decides about them. Other nodes than this one are not reached: the
// error matches transport.ErrNoNode.
func (n *Node) AdminClient(operator string) transport.AdminClient { return adminClient{n, operator} }

type adminClient struct {
	node     *Node
	operator string
}

// Ask implements transport.AdminClient.
func (c adminClient) Ask(ctx context.Context, service string, right transport.AdminRight, node string, request []byte) (answer []byte, err error) {
	switch {
	case node != "" && node != c.node.self.Name:
		return nil, fmt.Errorf("%w: node %.100q: the client of %v reaches only this node", transport.ErrNoNode, node, c.node.self)
	case len(request) > transport.MaxAdminRequest:
		return nil, fmt.Errorf("%w: %d bytes, the limit is %d", transport.ErrTooLarge, len(request), transport.MaxAdminRequest)
	}
	if p := panics.Call(func() { answer = c.node.handleAdmin(ctx, c.operator, service, right, request) }); p != nil {
		c.node.out.Log(slog.LevelError, "admin: handler panicked", slog.String("service", service), slog.String("panic", panics.Text(p.Value)), slog.String("stack", string(p.Stack)))
		return nil, transport.ErrHandlerFailed
	}
	return answer, nil
}

// Close implements transport.AdminClient. It does nothing.
func (adminClient) Close() error { return nil }

// handleAdmin checks a request of an operator and passes it to the handler of its service.
func (n *Node) handleAdmin(ctx context.Context, operator, service string, right transport.AdminRight, request []byte) []byte {
	var to struct {
		Service string `json:"service"`
		Command string `json:"command"`
	}
	if err := json.Unmarshal(request, &to); err != nil {
		return newAdminService().Refuse(invalid("request: %w", err))
	}
	r := OperatorRequest{Operator: operator, Service: cmp.Or(to.Service, ownService), Command: to.Command}
	if service != r.Service { // the carrier proves the right to a service by the address
		err := fmt.Errorf("%w: a request for the service %.100q was sent to the service %.100q", transport.ErrDenied, r.Service, service)
		n.adminDenied.Add(1)
		n.logAdmin(slog.LevelWarn, "admin: request denied", r, slog.Any("error", err))
		return newAdminService().Refuse(err)
	}
	found, _ := n.services.Load(r.Service)
	serves, _ := found.(adminHandler)
	if serves.handle == nil {
		return newAdminService().Refuse(invalid("%w: %.100q", errNoService, r.Service))
	}
	var known bool
	if r.Right, known = serves.commands[r.Command]; !known {
		return newAdminService().Refuse(invalid("unknown command %.100q", r.Command))
	}
	if err := n.authorize(ctx, r, right); err != nil {
		n.adminDenied.Add(1)
		n.logAdmin(slog.LevelWarn, "admin: request denied", r, slog.Any("error", err))
		return newAdminService().Refuse(err)
	}
	if r.Right == transport.AdminRead {
		n.logAdmin(slog.LevelInfo, "admin: read", r)
	} else {
		n.out.Log(slog.LevelInfo, "admin: command received", slog.String("operator", operator), slog.String("service", r.Service), slog.String("command", r.Command),
			slog.String("request", string(request[:min(len(request), maxLoggedRequest)])))
	}
	return serves.handle(ctx, operator, service, right, request)
}

// authorize returns an error if the node must not carry out a request.
func (n *Node) authorize(ctx context.Context, r OperatorRequest, right transport.AdminRight) error {
	if right != r.Right { // equality, so that reads never use the slots of actions
		return fmt.Errorf("%w: command %q of service %q requires the right to %v, the request uses the right to %v", transport.ErrDenied, r.Command, r.Service, r.Right, right)
	}
	if n.cfg.Authorize == nil {
		return nil
	}
	denied, text := false, ""
	p := panics.Call(func() {
		if err := n.cfg.Authorize(ctx, r); err != nil {
			denied, text = true, err.Error()
		}
	})
	switch {
	case p != nil: // do not send the text of the panic to the operator
		n.logAdmin(slog.LevelError, "admin: Config.Authorize panicked", r, slog.String("panic", fmt.Sprint(p.Value)), slog.String("stack", string(p.Stack)))
		return fmt.Errorf("%w: the authorization failed", transport.ErrDenied)
	case denied:
		return fmt.Errorf("%w: %s", transport.ErrDenied, text)
	case ctx.Err() != nil:
		return fmt.Errorf("%w: the authorization took too long: %w", transport.ErrDenied, context.Cause(ctx))
	}
	return nil
}

// adminKind is a kind of log lines about operators.
type adminKind struct {
	message string
	request OperatorRequest
}

// logAdmin writes at most one line a minute about requests of the same kind.
func (n *Node) logAdmin(level slog.Level, message string, r OperatorRequest, attrs ...slog.Attr) {
	attrs = append(attrs, slog.String("operator", r.Operator), slog.String("service", r.Service), slog.String("command", r.Command))
	n.adminLog.Log(n.base, n.log, adminKind{message, r}, level, message, attrs...)
}

func (n *Node) admin(ctx context.Context, _ string, r *adminRequest) (reply adminReply, err error) {
	switch r.Command {
	case adminState:
		reply.State, err = n.Summary(r.After)
	case adminSingletons:
		reply.Node = n.self.String()
		reply.Singletons, reply.More, err = n.reportSingletons(ctx, r.After)
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
	case adminJoin:
		err = n.JoinVia(ctx, r.Node)
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
	return &Admin{adminrpc.NewClient(client, newAdminService())}
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

// SingletonStatus is the state of a singleton on some nodes.
type SingletonStatus struct {
	Name string `json:"name"`
	// Role is the role of the nodes that can run it, empty for all nodes.
	Role string `json:"role,omitempty"`
	// Node is the name of the node that runs the instance, empty if none of the nodes does. Since is
	// the time at which the instance started, by the clock of the node.
	Node  string    `json:"node,omitempty"`
	Since time.Time `json:"since,omitzero"`
	// States are the parts of the nodes, by name. A node is "oldest" if it runs the instance or may run
	// it, and "younger" if it waits for an older node. The other states are those of a hand-over:
	// "becoming oldest", "acquiring lease", "was oldest", "handing over", "stopping" and "end". A node
	// that is not a member yet is in the state "start".
	States map[string]string `json:"states"`
}

// Singletons returns the singletons in which the named nodes take part, sorted by name. Those whose
// names begin with "sharding|" and "groups|" are the coordinators of package sharding. It queries the
// nodes concurrently. The error joins the failures of nodes. It may come with the singletons of the
// other nodes.
func (a *Admin) Singletons(ctx context.Context, nodes []string) ([]SingletonStatus, error) {
	found, errs := make([][]reportedSingleton, len(nodes)), make([]error, len(nodes))
	var all sync.WaitGroup
	for i, name := range nodes {
		all.Go(func() {
			request := adminRequest{Command: adminSingletons}
			for reply, err := range adminrpc.Pages[adminRequest, adminReply](ctx, a.client, name, string(adminSingletons), &request) {
				if err != nil {
					errs[i] = err
					return
				}
				if found[i] = append(found[i], reply.Singletons...); len(reply.Singletons) > 0 {
					request.After = reply.Singletons[len(reply.Singletons)-1].Name
				}
			}
		})
	}
	all.Wait()
	byName := map[string]*SingletonStatus{}
	for i, reported := range found {
		for _, r := range reported {
			s := byName[r.Name]
			if s == nil {
				s = &SingletonStatus{Name: r.Name, Role: r.Role, States: map[string]string{}}
				byName[r.Name] = s
			}
			if s.States[nodes[i]] = r.State; r.Running && !r.Since.Before(s.Since) { // two nodes may report it, one after the other
				s.Node, s.Since = nodes[i], r.Since
			}
		}
	}
	var out []SingletonStatus
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		out = append(out, *byName[name])
	}
	return out, errors.Join(errs...)
}

// Join orders a node that was started without Config.Seeds to join the cluster through the member
// with the name seed, as Node.JoinVia does. If both names are equal, the node founds a cluster:
// make sure that no other node of the cluster runs. Join returns before the node is a member. The
// node must be named: a node that is not a member does not answer requests to any node.
func (a *Admin) Join(ctx context.Context, node, seed string) error {
	if node == "" {
		return invalid("join through %q: the name of the node is missing", seed)
	}
	return a.command(ctx, node, adminRequest{Command: adminJoin, Node: seed})
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
