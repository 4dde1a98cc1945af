// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/adminrpc"
	"github.com/refold-io/refold/internal/shardcore"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
	"github.com/refold-io/refold/transport"
)

// adminService is the name of this package's service for operators: see cluster.Node.HandleAdmin.
const adminService = "sharding"

func adminProtocol() *adminrpc.Service {
	return &adminrpc.Service{
		Package: "sharding", Missing: ErrNoRegion,
		Commands: map[string]transport.AdminRight{
			string(adminCmdRegions): transport.AdminRead, string(adminCmdShards): transport.AdminRead, string(adminCmdEntities): transport.AdminRead, string(adminCmdFind): transport.AdminRead,
			string(adminCmdGroups):    transport.AdminRead,
			string(adminCmdRebalance): transport.AdminAct, string(adminCmdDrain): transport.AdminAct, string(adminCmdUndrain): transport.AdminAct,
			string(adminCmdMove): transport.AdminAct, string(adminCmdRelease): transport.AdminAct,
		},
		Errors: map[string]error{"no region": ErrNoRegion, "no coordinator": ErrNoCoordinator, "cannot move": ErrCannotMove},
	}
}

// adminCommand is the name of a request. All requests can be repeated.
type adminCommand string

const (
	adminCmdRegions  adminCommand = "regions"  // the regions and proxies of the node, or only the one of the requested type
	adminCmdShards   adminCommand = "shards"   // the shards that the node hosts, with entity counts and rates
	adminCmdEntities adminCommand = "entities" // the IDs of the running entities of a shard
	adminCmdFind     adminCommand = "find"     // the location of an entity
	adminCmdGroups   adminCommand = "groups"   // the groups in which the node takes part
	// adminCmdRebalance runs the strategy once. Only the node with the coordinator accepts it.
	adminCmdRebalance adminCommand = "rebalance"
	// adminCmdDrain starts Region.Drain and does not wait for its end.
	adminCmdDrain   adminCommand = "drain"
	adminCmdUndrain adminCommand = "undrain" // see Region.Undrain
	// adminCmdMove and adminCmdRelease are Admin.Move and Admin.Release. Only the node with the
	// coordinator accepts them.
	adminCmdMove    adminCommand = "move"
	adminCmdRelease adminCommand = "release"
)

type adminRequest struct {
	Service string       `json:"service"` // adminService
	Command adminCommand `json:"command"`
	// Type is the name of the entity type. It is optional for adminCmdRegions only.
	Type  string `json:"type,omitempty"`
	Shard Shard  `json:"shard,omitempty"` // shard of adminCmdEntities, adminCmdMove and adminCmdRelease
	To    string `json:"to,omitempty"`    // name of the node of adminCmdMove
	ID    string `json:"id,omitempty"`    // entity of adminCmdFind
	// Behind is the first shard of a page of adminCmdShards. After is the last type or ID before a
	// page of adminCmdRegions or adminCmdEntities. For adminCmdGroups, After is the role and the name
	// of the last group, separated by a NUL.
	Behind Shard  `json:"behind,omitempty"`
	After  string `json:"after,omitempty"`
}

type adminReply struct {
	adminrpc.Head

	Regions  []AdminRegion `json:"regions,omitempty"`
	Shards   []ShardCount  `json:"shards,omitempty"`
	Entities []string      `json:"entities,omitempty"`
	Found    *AdminFound   `json:"found,omitempty"`
	Groups   []GroupStatus `json:"groups,omitempty"`
	Moving   int           `json:"moving,omitempty"` // shards that adminCmdRebalance moves
}

// AdminRegion is the state of a region or a proxy. Nodes have the format of identity.Node.String.
type AdminRegion struct {
	Type string `json:"type"`
	// Role is the role of the nodes that host the type, empty for all nodes.
	Role string `json:"role,omitempty"`
	// Total is the number of shards of the type.
	Total int `json:"total"`
	// Proxy reports that the node hosts no shards.
	Proxy bool `json:"proxy,omitempty"`
	// Drained reports that the node hands off its shards and accepts no others.
	Drained bool `json:"drained,omitempty"`
	// Coordinator is the node of the coordinator that has registered the region, empty if there is
	// none.
	Coordinator string `json:"coordinator,omitempty"`
	// Singleton is the name of the singleton that runs the coordinator: see cluster.Admin.Singletons.
	Singleton string `json:"singleton,omitempty"`
	// Mismatch is set if the coordinator rejects the region. It names the settings that differ.
	Mismatch string `json:"mismatch,omitempty"`
	// Shards is the number of hosted shards. Entities counts their running and starting entities.
	Shards   int `json:"shards"`
	Entities int `json:"entities"`
	// Waiting is the number of commands that wait on the node. Dropped is the number of commands
	// that were not delivered since the start of the region.
	Waiting int    `json:"waiting,omitempty"`
	Dropped uint64 `json:"dropped,omitempty"`
	// CoordinatorState is nil unless the node runs the coordinator.
	CoordinatorState *AdminCoordinator `json:"coordinator_state,omitempty"`
}

// AdminCoordinator is the state of the coordinator of a type.
type AdminCoordinator struct {
	Term  uint64 `json:"term"`
	Phase string `json:"phase"`
	// Regions and Proxies are the numbers of registered regions and proxies. Some of their nodes
	// may have left the cluster.
	Regions int `json:"regions"`
	Proxies int `json:"proxies"`
	// Placed is the number of shards that have a home. Moving is the number of these shards that
	// are in a hand-off. Starting is the number of these shards that have stopped on their earlier home
	// and start on their next one.
	Placed   int `json:"placed"`
	Moving   int `json:"moving,omitempty"`
	Starting int `json:"starting,omitempty"`
	// Refused is the number of regions and proxies that the coordinator rejects because their
	// settings differ.
	Refused int `json:"refused,omitempty"`
	// Pins are the shards that Admin.Move keeps on a node, sorted by shard.
	Pins []AdminPin `json:"pins,omitempty"`
	// Moves are the shards that change their homes, the longest move first, at most 250. They include
	// shards that have stopped and have not started on their next home, which Moving does not count.
	// Shards whose home has terminated are listed as well.
	Moves []AdminMove `json:"moves,omitempty"`
}

// AdminMove is a shard that changes its home. From and To are names of nodes.
type AdminMove struct {
	Shard Shard `json:"shard"`
	// Step is "stopping" while From stops the shard, "allocating" while the shard has no home, and
	// "starting" while To starts it.
	Step string `json:"step"`
	From string `json:"from"`
	// To is empty until the strategy has chosen the next home, unless an operator moves the shard.
	To string `json:"to,omitempty"`
	// Since is the time at which the move has begun, by the clock of the coordinator's node.
	Since time.Time `json:"since"`
}

// AdminPin is a shard that Admin.Move keeps on a node.
type AdminPin struct {
	Shard Shard `json:"shard"`
	// Node is the name of the node.
	Node string `json:"node"`
	// Home is the node that hosts the shard now, empty if there is none. It is another node while
	// the shard moves, and while the pin is dormant because Node cannot host shards.
	Home string `json:"home,omitempty"`
}

// AdminFound is the location of an entity.
type AdminFound struct {
	Shard Shard `json:"shard"`
	// Home is the node that hosts the shard. It is empty if the replying node has no route for the
	// shard.
	Home string `json:"home,omitempty"`
	// Coordinator is the node of the coordinator that has registered the replying region.
	Coordinator string `json:"coordinator,omitempty"`
	// Running reports whether the entity runs on the replying node.
	Running bool `json:"running,omitempty"`
}

// Limits of one reply.
const (
	adminPage  = 1000      // shards or IDs
	adminMoves = 250       // moves of a type
	adminBytes = 192 << 10 // bytes of IDs
)

// ErrNoRegion reports that a node has neither a region nor a proxy of the type.
var ErrNoRegion = errors.New("sharding: node has no region of this type")

func (rt *router) administer(ctx context.Context, _ string, r *adminRequest) (reply adminReply, err error) {
	if r.Command == adminCmdRegions && r.Type == "" {
		reply, err = rt.adminRegions(ctx, r.After)
	} else if r.Command == adminCmdGroups {
		reply, err = rt.adminGroups(ctx, r.After)
	} else if s := rt.find(r.Type); s != nil {
		reply, err = s.administer(ctx, r)
	} else {
		err = fmt.Errorf("%w: %.100q", ErrNoRegion, r.Type)
	}
	reply.Node = rt.node.Self().String()
	return reply, err
}

// types returns the types that have a region or a proxy on the node, sorted.
func (rt *router) types() []string {
	rt.mu.RLock()
	defer rt.mu.RUnlock()
	return slices.Sorted(maps.Keys(rt.shells))
}

// adminRegions returns a page of regions. It begins with the first type that sorts after the
// argument after.
func (rt *router) adminRegions(ctx context.Context, after string) (reply adminReply, err error) {
	listed := 0 // moves and pins
	for _, name := range rt.types() {
		s := rt.find(name)
		switch {
		case name <= after || s == nil:
			continue
		case len(reply.Regions) == adminPage/10 || listed > adminPage:
			reply.More = true
			return reply, nil
		}
		region, err := s.adminRegion(ctx)
		if errors.Is(err, ErrStopped) {
			continue
		}
		if err != nil {
			return reply, err
		}
		reply.Regions = append(reply.Regions, region)
		if c := region.CoordinatorState; c != nil {
			listed += len(c.Moves) + len(c.Pins)
		}
	}
	return reply, nil
}

func (s *shell) administer(ctx context.Context, r *adminRequest) (reply adminReply, err error) {
	switch r.Command {
	case adminCmdRegions:
		var region AdminRegion
		region, err = s.adminRegion(ctx)
		reply.Regions = []AdminRegion{region}
	case adminCmdShards:
		err = s.call(ctx, func() {
			rest := slices.DeleteFunc(s.counts(), func(c ShardCount) bool { return c.Shard < r.Behind })
			reply.Shards, reply.More = rest[:min(len(rest), adminPage)], len(rest) > adminPage
			s.loadMeter.addRates(reply.Shards)
		})
	case adminCmdEntities:
		err = s.call(ctx, func() { reply.Entities, reply.More = s.adminEntities(r.Shard, r.After) })
	case adminCmdFind:
		reply.Found, err = s.adminFind(ctx, r.ID)
	case adminCmdRebalance:
		reply.Moving, err = s.adminRebalance(ctx)
	case adminCmdMove, adminCmdRelease:
		err = s.adminPin(ctx, coordinator.Pin{Shard: r.Shard, Node: r.To}, r.Command == adminCmdMove)
	case adminCmdDrain:
		if !s.proxy {
			s.beginDrain() //nolint:contextcheck // the drain continues after the request
		}
	case adminCmdUndrain:
		err = s.undrain(ctx)
	default:
		err = fmt.Errorf("%w: command %.100q", ErrInvalid, string(r.Command))
	}
	if err != nil {
		return adminReply{}, err
	}
	return reply, nil
}

func (s *shell) adminRegion(ctx context.Context) (a AdminRegion, err error) {
	a = AdminRegion{Type: s.name, Role: s.opts.Role, Singleton: singletonPrefix + s.name, Total: s.opts.Shards, Proxy: s.proxy, Dropped: s.dropped.Load()}
	if why := s.mismatchErr(); why != nil {
		a.Mismatch = why.Error()
	}
	err = s.call(ctx, func() {
		m := s.machine
		a.Drained, a.Waiting = m.Leaving(), m.Waiting()
		if node, ok := m.Coordinator(); ok {
			a.Coordinator = node.String()
		}
		for _, c := range s.counts() {
			a.Shards++
			a.Entities += c.Entities
		}
		a.CoordinatorState = s.coordinatorState()
	})
	return a, err
}

// coordinatorState returns the state of the coordinator, nil unless this node runs it. The loop calls
// it.
func (s *shell) coordinatorState() *AdminCoordinator {
	c := s.machine.LocalCoordinator()
	if c == nil {
		return nil
	}
	state, _ := c.State()
	var pins []AdminPin
	for _, p := range state.Pins() {
		home, _ := state.Home(p.Shard)
		pins = append(pins, AdminPin{p.Shard, p.Node, home.Name})
	}
	moves, start := c.Moves(), time.Now().Add(-s.now())
	starting := 0
	for _, x := range moves {
		if x.Step == coordinator.MoveStarting {
			starting++
		}
	}
	var moving []AdminMove
	for _, x := range moves[:min(len(moves), adminMoves)] {
		moving = append(moving, AdminMove{x.Shard, x.Step.String(), x.From.Name, x.To.Name, start.Add(x.Since).Round(time.Millisecond)})
	}
	return &AdminCoordinator{
		Pins: pins, Moves: moving, Term: c.Term(), Phase: c.Phase().String(), Regions: len(state.Regions()), Proxies: len(state.Proxies()), Placed: state.Shards(), Moving: len(c.Moving()), Starting: starting, Refused: c.Refused(),
	}
}

// adminEntities returns a page of the IDs of running entities of a shard. It begins with the first
// ID that sorts after the argument after. The loop calls it.
func (s *shell) adminEntities(n Shard, after string) (page []string, more bool) {
	room := adminBytes
	for _, id := range s.machine.Running(n) {
		if id <= after && after != "" {
			continue
		}
		if room -= 6*len(id) + 3; len(page) == adminPage || room < 0 { // a byte takes at most six bytes of JSON
			return page, true
		}
		page = append(page, id)
	}
	return page, false
}

func (s *shell) adminFind(ctx context.Context, id string) (*AdminFound, error) {
	n, err := s.shardOf(id)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	found := &AdminFound{Shard: n}
	err = s.call(ctx, func() {
		m := s.machine
		home, known := m.Home(n)
		if c := m.LocalCoordinator(); c != nil && !known {
			state, _ := c.State()
			home, known = state.Home(n)
		}
		if known {
			found.Home = home.String()
		}
		if node, ok := m.Coordinator(); ok {
			found.Coordinator = node.String()
		}
		found.Running = slices.Contains(m.Running(n), id)
	})
	return found, err
}

// pollInterval is the interval of checks whether the strategy has returned, or a pin is stored.
const pollInterval = 10 * time.Millisecond

// adminRebalance runs the strategy once, waits for its result and returns how many shards it moves.
func (s *shell) adminRebalance(ctx context.Context) (moving int, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.opts.Tuning.StrategyTimeout+queryTimeout, errNoReply)
	defer cancel()
	var asked *coordinator.Machine
	before, begun := 0, 0
	if err := s.poll(ctx, func() (done bool, err error) { //nolint:contextcheck // the loop uses its own context
		c := s.machine.LocalCoordinator()
		if c != nil && asked == nil {
			asked, before = c, c.HandOffs()
			s.step(shardcore.Rebalance{})
		}
		if c == nil || c != asked {
			return false, fmt.Errorf("%w on %v", ErrNoCoordinator, s.node.Self())
		}
		begun = c.HandOffs() - before
		return !c.Rebalancing(), nil
	}); err != nil {
		return 0, err
	}
	return begun, nil
}

// ErrCannotMove reports that Admin.Move cannot move a shard to a node, or that Admin.Release has
// nothing to release. The error names the reason.
var ErrCannotMove = errors.New("sharding: cannot move the shard")

// adminPin stores a pin and waits until it is durable. A pin with the node "" is removed.
func (s *shell) adminPin(ctx context.Context, pin coordinator.Pin, move bool) error {
	if move && pin.Node == "" {
		return fmt.Errorf("%w: the name of the node is missing", ErrInvalid)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, s.opts.Tuning.SaveTimeout+queryTimeout, errNoReply)
	defer cancel()
	var asked *coordinator.Machine
	return s.poll(ctx, func() (done bool, err error) { //nolint:contextcheck // the loop uses its own context
		c := s.machine.LocalCoordinator()
		if c == nil || c.Phase() != coordinator.Active || asked != nil && c != asked {
			return false, fmt.Errorf("%w on %v", ErrNoCoordinator, s.node.Self())
		}
		if asked == nil {
			if err := c.CheckPin(pin.Shard, pin.Node); err != nil {
				return false, fmt.Errorf("%w: %w", ErrCannotMove, err)
			}
			asked = c
			s.step(shardcore.SetPin{Pin: pin})
		}
		state, _ := c.State()
		node, _ := state.Pin(pin.Shard)
		return node == pin.Node, nil
	})
}

// poll calls f on the loop until it is done or returns an error.
func (s *shell) poll(ctx context.Context, f func() (done bool, err error)) error {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		var done bool
		var err error
		if failed := s.call(ctx, func() { done, err = f() }); failed != nil {
			return failed
		}
		if done || err != nil {
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Admin sends requests of an operator to nodes. Its methods are safe for concurrent use. They
// return the errors of transport.AdminClient and the errors that nodes report. An error that a node
// reports matches ErrNoRegion or ErrNoCoordinator if that is its cause.
type Admin struct{ client *adminrpc.Client }

// NewAdmin returns an Admin that sends its requests through a client of a plugin, such as
// nats.ConnectOperator. It does not close the client.
func NewAdmin(client transport.AdminClient) *Admin {
	return &Admin{adminrpc.NewClient(client, adminProtocol())}
}

// AdminNode is the reply of a node about its regions.
type AdminNode struct {
	// Name is the name of the node. Node is the replying incarnation in the format of
	// identity.Node.String. It is empty without a reply.
	Name, Node string
	Regions    []AdminRegion
	// Err is the reason for which Regions is missing or incomplete. It matches ErrNoRegion if the
	// node has no region.
	Err error
}

// Region returns the region or the proxy of a type, nil if there is none.
func (n *AdminNode) Region(typ string) *AdminRegion {
	for i := range n.Regions {
		if n.Regions[i].Type == typ {
			return &n.Regions[i]
		}
	}
	return nil
}

// Regions returns all regions and proxies of some nodes. It sends the requests concurrently and
// reports failures in AdminNode.Err.
func (a *Admin) Regions(ctx context.Context, nodes []string) []AdminNode {
	found := make([]AdminNode, len(nodes))
	var all sync.WaitGroup
	for i, name := range nodes {
		all.Go(func() {
			n := AdminNode{Name: name}
			request := adminRequest{Command: adminCmdRegions}
			for reply, err := range a.pages(ctx, name, &request) {
				if n.Err = err; err != nil {
					break
				}
				n.Node, n.Regions = reply.Node, append(n.Regions, reply.Regions...)
				if len(reply.Regions) > 0 {
					request.After = reply.Regions[len(reply.Regions)-1].Type
				}
			}
			found[i] = n
		})
	}
	all.Wait()
	return found
}

// Shards yields the shards of a type that a node hosts, sorted, with their rates of commands. An error
// ends the sequence.
func (a *Admin) Shards(ctx context.Context, node, typ string) iter.Seq2[ShardCount, error] {
	return list(ctx, a, node, adminRequest{Command: adminCmdShards, Type: typ}, func(reply *adminReply) []ShardCount { return reply.Shards },
		func(request *adminRequest, last ShardCount) { request.Behind = last.Shard + 1 })
}

// Entities yields the IDs of the entities of a shard that run on a node, sorted. An error ends the
// sequence.
func (a *Admin) Entities(ctx context.Context, node, typ string, shard Shard) iter.Seq2[string, error] {
	return list(ctx, a, node, adminRequest{Command: adminCmdEntities, Type: typ, Shard: shard}, func(reply *adminReply) []string { return reply.Entities },
		func(request *adminRequest, last string) { request.After = last })
}

// Groups yields the groups and workers in which a node takes part, as that node sees them. An error
// ends the sequence. It matches ErrNoRegion if the node has neither groups nor regions.
func (a *Admin) Groups(ctx context.Context, node string) iter.Seq2[GroupStatus, error] {
	return list(ctx, a, node, adminRequest{Command: adminCmdGroups}, func(reply *adminReply) []GroupStatus { return reply.Groups },
		func(request *adminRequest, last GroupStatus) { request.After = last.Role + "\x00" + last.Name })
}

// list yields the elements of all pages of a list. The function after changes the request, so that
// the next page begins after the given element.
func list[T any](
	ctx context.Context, a *Admin, node string, request adminRequest, elements func(*adminReply) []T, after func(request *adminRequest, last T),
) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		request := request // each iteration begins with the first page
		for reply, err := range a.pages(ctx, node, &request) {
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, e := range elements(reply) {
				if after(&request, e); !yield(e, nil) {
					return
				}
			}
		}
	}
}

// Find returns the location of an entity. It sends requests to up to three nodes: to the given
// node, to the coordinator if the given node has no route for the shard, and to the home, which
// reports whether the entity runs. If the home does not reply, Running is false. The error matches
// ErrNoRegion if the given node has no region of the type.
func (a *Admin) Find(ctx context.Context, node, typ, id string) (*AdminFound, error) {
	request := adminRequest{Command: adminCmdFind, Type: typ, ID: id}
	found, err := a.find(ctx, node, request)
	if err != nil {
		return nil, err
	}
	if found.Home == "" && found.Coordinator != "" {
		if from, err := a.find(ctx, nameOf(found.Coordinator), request); err == nil {
			found.Home = from.Home
		}
	}
	if found.Running = false; found.Home == "" {
		return found, nil
	}
	if at, err := a.find(ctx, nameOf(found.Home), request); err == nil {
		found.Running = at.Running
	}
	return found, nil
}

func (a *Admin) find(ctx context.Context, node string, request adminRequest) (*AdminFound, error) {
	reply, err := a.ask(ctx, node, request)
	if err != nil {
		return nil, err
	}
	if reply.Found == nil {
		return nil, a.client.Malformed(string(request.Command), "no location")
	}
	return reply.Found, nil
}

// nameOf returns the name in the text form of a node.
func nameOf(node string) string {
	if n, err := identity.Parse(node); err == nil {
		return n.Name
	}
	return node
}

// Rebalance runs the strategy of a type once and returns the number of hand-offs that it starts.
// The error matches ErrNoCoordinator if the node does not run the coordinator of the type.
func (a *Admin) Rebalance(ctx context.Context, node, typ string) (moving int, err error) {
	reply, err := a.ask(ctx, node, adminRequest{Command: adminCmdRebalance, Type: typ})
	if err != nil {
		return 0, err
	}
	return reply.Moving, nil
}

// Move moves a shard to the node with a name and keeps it there until Release: strategies do not
// move it. It returns when the decision is durable; the hand-off follows. A shard that does not run
// goes to the node when it starts. While the node cannot host shards, because it is gone, drained, leaving
// or unreachable, the strategy chooses the home. The shard returns with the first rebalance after the node
// can host it again. A type has at most 1,000 shards that are moved in this way.
//
// The error matches ErrCannotMove if the node is unknown, has only a proxy, or cannot host the shard
// now, and ErrNoCoordinator if the queried node does not run the coordinator of the type.
func (a *Admin) Move(ctx context.Context, node, typ string, shard Shard, to string) error {
	_, err := a.ask(ctx, node, adminRequest{Command: adminCmdMove, Type: typ, Shard: shard, To: to})
	return err
}

// Release cancels Move: the strategy may move the shard again. It stays where it is until then. The
// error matches ErrCannotMove if Move was not called for the shard, and ErrNoCoordinator if the
// queried node does not run the coordinator of the type.
func (a *Admin) Release(ctx context.Context, node, typ string, shard Shard) error {
	_, err := a.ask(ctx, node, adminRequest{Command: adminCmdRelease, Type: typ, Shard: shard})
	return err
}

// Drain starts to hand off all shards of a type that a node hosts: see Region.Drain. It does
// nothing on a proxy.
func (a *Admin) Drain(ctx context.Context, node, typ string) error {
	_, err := a.ask(ctx, node, adminRequest{Command: adminCmdDrain, Type: typ})
	return err
}

// Undrain cancels Drain: see Region.Undrain.
func (a *Admin) Undrain(ctx context.Context, node, typ string) error {
	_, err := a.ask(ctx, node, adminRequest{Command: adminCmdUndrain, Type: typ})
	return err
}

// pages yields the replies of a list. The consumer changes the request, so that the next reply is
// the next page.
func (a *Admin) pages(ctx context.Context, node string, r *adminRequest) iter.Seq2[*adminReply, error] {
	r.Service = adminService
	return adminrpc.Pages[adminRequest, adminReply](ctx, a.client, node, string(r.Command), r)
}

func (a *Admin) ask(ctx context.Context, node string, r adminRequest) (*adminReply, error) {
	r.Service = adminService
	return adminrpc.Ask[adminReply](ctx, a.client, node, string(r.Command), r)
}
