// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"log/slog"
	"strings"
	"time"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/fielderror"
	"github.com/refold-io/refold/internal/inbox"
	"github.com/refold-io/refold/internal/shardcore/groups"
)

// Group is a stateless or replicated service of which the cluster runs several instances. The
// instances are numbered and run on different nodes, as long as there are enough nodes. All nodes
// with the role must start the group, and with the same configuration; during an upgrade, the
// settings of the oldest node apply.
//
// The oldest node with the role chooses the nodes of the instances. A planned move has no gap: the
// new instance is ready before the old one ends. For a short time, and during a network partition,
// a number can therefore have two instances. Workers run each number at most once.
type Group struct {
	// Name identifies the group among all groups and workers of the role. Required: 1 to 255 bytes
	// of UTF-8 without NUL.
	Name string
	// Role is the role of the nodes that run instances. A node without the role only sends messages.
	// Defaults to "": all nodes.
	Role string
	// Instances is the number of instances. Defaults to 1, at most 1,000.
	Instances int
	// Tolerate returns how many of a number of nodes may fail at the same time, less than that
	// number. The group has at least one more instance than that, so that one survives. It must be
	// deterministic and must not block. Defaults to nil, which means Instances-1 nodes.
	Tolerate func(nodes int) int
	// MaxInstances lets the load increase the number of instances up to this limit. If the mean load
	// of the instances stays above 0.8 or below 0.4 for 30 s, the number changes so that the load
	// becomes 0.6. See Instance.SetLoad. Defaults to 0: the load has no influence.
	MaxInstances int
	// Run is an instance. It must return when its context ends: planned moves and the shutdown of
	// the node wait for it. If it returns earlier or panics, it is called again after
	// RestartBackoff. Its error is logged. Defaults to nil: the node only sends messages.
	Run func(ctx context.Context, i *Instance) error
	// RestartBackoff is the pause before an instance that has returned early is run again. After
	// repeated failures it grows to at most thirty times this value. Defaults to 1 s.
	RestartBackoff time.Duration
	// MaxInbox is how many messages may wait for an instance. Together they have at most 16 MiB.
	// For a new request, the requests that the instance has received and not answered count as
	// well. Defaults to 1,000.
	MaxInbox int
	// Logger gets the log lines of the instances, with the keys node, group and instance. Its handler
	// must not block. Defaults to the logger of the node, whose handler does not block.
	Logger *slog.Logger
}

// Workers are numbered instances that share some work, such as the slices of a projection. Each
// worker runs at most once in the cluster: it ends before it starts on another node. After a crash
// it starts on another node when the crashed node was removed and the removal margin has passed. A
// node that is suspended or downed ends its workers. All nodes with the role must start the workers.
type Workers struct {
	// Name, Role, Run, RestartBackoff, MaxInbox and Logger are those of Group.
	Name string
	Role string
	Run  func(ctx context.Context, i *Instance) error
	// Count is the number of workers. See GroupRef.Rescale for a change while they run. Defaults to
	// 1, at most 1,000.
	Count          int
	RestartBackoff time.Duration
	MaxInbox       int
	Logger         *slog.Logger
}

// ErrRescaling is returned by GroupRef.Rescale while another change of the number of workers is not
// complete.
var ErrRescaling = groups.ErrRescaling

// StartGroup lets this node take part in a group until the node ends. The error matches ErrInvalid
// if the configuration is invalid or the node takes part already. If the node has ended, the error
// is the reason.
func StartGroup(ctx context.Context, node *cluster.Node, g Group) (*GroupRef, error) {
	return startGroup(ctx, node, g, false)
}

// StartWorkers lets this node run workers until the node ends. The error is that of StartGroup.
func StartWorkers(ctx context.Context, node *cluster.Node, w Workers) (*GroupRef, error) {
	return startGroup(ctx, node, Group{
		Name: w.Name, Role: w.Role, Instances: w.Count, Run: w.Run, RestartBackoff: w.RestartBackoff, MaxInbox: w.MaxInbox, Logger: w.Logger,
	}, true)
}

func startGroup(ctx context.Context, node *cluster.Node, g Group, exclusive bool) (*GroupRef, error) {
	wrap := func(err error) error { return fmt.Errorf("sharding: group %.100q: %w", g.Name, err) }
	if ctx.Err() != nil {
		return nil, wrap(context.Cause(ctx))
	}
	kind, count := "Group", "Instances"
	if exclusive {
		kind, count = "Workers", "Count"
	}
	g.Instances, g.MaxInbox, g.RestartBackoff = cmp.Or(g.Instances, 1), cmp.Or(g.MaxInbox, 1000), cmp.Or(g.RestartBackoff, time.Second)
	var errs fielderror.Errors
	if bad(g.Name, groups.MaxName) || strings.TrimSpace(g.Name) == "" {
		errs.Addf(kind+".Name", "is %.64q, it must be UTF-8 of at most %d bytes, not blank, without NUL", g.Name, groups.MaxName)
	}
	if bad(g.Role, maxRole) {
		errs.Addf(kind+".Role", "is %.64q, it must be UTF-8 of at most %d bytes, without NUL", g.Role, maxRole)
	}
	if g.Instances < 1 || g.Instances > groups.MaxInstances {
		errs.Addf(kind+"."+count, "is %d, it must be from 1 to %d", g.Instances, groups.MaxInstances)
	}
	if g.MaxInstances != 0 && (g.MaxInstances < max(g.Instances, 1) || g.MaxInstances > groups.MaxInstances) {
		errs.Addf(kind+".MaxInstances", "is %d, it must be 0, or from %d to %d", g.MaxInstances, g.Instances, groups.MaxInstances)
	}
	if g.MaxInbox < 1 {
		errs.Addf(kind+".MaxInbox", "is %d, it must be at least 1", g.MaxInbox)
	}
	if g.RestartBackoff < 0 {
		errs.Addf(kind+".RestartBackoff", "is %v, less than 0", g.RestartBackoff)
	}
	if err := errs.Err(ErrInvalid); err != nil {
		return nil, err
	}
	s, err := groupShellOf(ctx, node, g.Role)
	if err != nil {
		return nil, wrap(err)
	}
	r := &GroupRef{shell: s, group: g, exclusive: exclusive}
	if err := s.add(ctx, r); err != nil {
		return nil, wrap(err)
	}
	return r, nil
}

// Instance is a running instance of a group, or a worker. Its methods are safe for concurrent use.
type Instance struct {
	ref   *GroupRef
	id    groups.Instance
	count int
	run   *groupInstance
	inbox *inbox.Inbox
}

// Group returns the name of the group or of the workers.
func (i *Instance) Group() string { return i.id.Group }

// Nr returns the number of the instance, from 0.
func (i *Instance) Nr() int { return i.id.Nr }

// Count returns the number of instances when this one started. Workers with different counts never
// run at the same time. The number of instances of a group can change while an instance runs.
func (i *Instance) Count() int { return i.count }

// Receive returns the next message. The first call reports that the instance is ready. The error is
// the cause of ctx, which should be the context of Group.Run or derived from it.
func (i *Instance) Receive(ctx context.Context) (*GroupMessage, error) {
	i.Ready()
	m, err := i.inbox.Receive(ctx)
	if err != nil {
		return nil, err
	}
	return &GroupMessage{m.From, m.Payload, m}, nil
}

// All yields the messages until ctx ends.
func (i *Instance) All(ctx context.Context) iter.Seq[*GroupMessage] {
	i.Ready()
	return func(yield func(*GroupMessage) bool) {
		for {
			m, err := i.Receive(ctx)
			if err != nil || !yield(m) {
				return
			}
		}
	}
}

// GroupMessage is a message for an instance. The instance must answer a request with Reply or
// Refuse, at any time while it runs. An unanswered request counts towards Group.MaxInbox.
type GroupMessage struct {
	// From is the node of the sender.
	From    identity.Node
	Payload []byte

	message *inbox.Delivery
}

// Asked reports whether the sender waits for a reply.
func (m *GroupMessage) Asked() bool { return m.message.Asked() }

// Reply answers a request. It does nothing for other messages and for answered requests. The error
// is one of the transport's Send.
func (m *GroupMessage) Reply(payload []byte) error { return m.message.Reply(payload) }

// Refuse answers a request with an error that matches cluster.ErrRefused and has this text.
func (m *GroupMessage) Refuse(text string) error { return m.message.Refuse(text) }

// Ready reports that the instance is ready, so that an instance that it replaces may end. An
// instance that receives messages need not call it.
func (i *Instance) Ready() { i.run.setReady() }

// SetLoad sets the load of the instance for Group.MaxInstances. 1 means that the instance is fully
// used. Without a call, the load is a tenth of the number of messages that wait or are not answered.
func (i *Instance) SetLoad(load float64) { i.run.setLoad(load) }

// GroupStatus describes a group as a node sees it. Nodes have the format of identity.Node.String.
type GroupStatus struct {
	Name string `json:"name"`
	Role string `json:"role,omitempty"`
	// Workers reports that each number runs at most once in the cluster.
	Workers bool `json:"workers,omitempty"`
	// Coordinator is the node that changes the table, empty if it is unknown.
	Coordinator string `json:"coordinator,omitempty"`
	// Singleton is the name of the singleton that runs the coordinator: see cluster.Admin.Singletons.
	Singleton string `json:"singleton,omitempty"`
	// Revision counts the changes of the tables of the role.
	Revision uint64 `json:"revision"`
	// Rescaled is the number of instances that was requested by Rescale, 0 if there was no request.
	Rescaled int `json:"rescaled,omitempty"`
	// Places are the instances in the order of their numbers.
	Places []GroupPlace `json:"places"`
	// Waiting are the nodes for which the coordinator waits, on the node of the coordinator only.
	Waiting []string `json:"waiting,omitempty"`
}

// GroupPlace is the place of an instance. Empty strings mean no node.
type GroupPlace struct {
	// Node runs the instance. Next is about to run it. Old is about to end it.
	Node string `json:"node,omitempty"`
	Next string `json:"next,omitempty"`
	Old  string `json:"old,omitempty"`
	// Here is the number of instances of this number that run on the replying node.
	Here int `json:"here,omitempty"`
}

// GroupRef sends messages to the instances of a group. Its methods are safe for concurrent use.
type GroupRef struct {
	shell     *groupShell
	group     Group
	exclusive bool
	turn      counter // of Any
	open      openAsks
}

// Name returns the name of the group.
func (r *GroupRef) Name() string { return r.group.Name }

// Any returns a route to all instances in turn.
func (r *GroupRef) Any() Route { return Route{r, routeAny, 0} }

// LeastLoaded returns a route to the instance with the fewest messages that wait or are not
// answered: those of this node, and those that the instance reported with its last reply.
func (r *GroupRef) LeastLoaded() Route { return Route{r, routeLeast, 0} }

// ByKey returns a route that depends on the key only. If the number of instances changes, few keys
// change their instance.
func (r *GroupRef) ByKey(key string) Route { return Route{r, routeKey, uint64(hash(key))} }

// Instance returns a route to the instance with a number.
func (r *GroupRef) Instance(nr int) Route { return Route{r, routeNr, uint64(max(nr, 0))} }

// Await waits until all instances of the group run in the view of this node. The error is that of
// ctx or ErrStopped.
func (r *GroupRef) Await(ctx context.Context) error {
	for {
		table, changed := r.shell.current()
		if g := table.Find(r.group.Name); g != nil && g.Count > 0 && g.Pending() == 0 && len(g.Slots) == g.Count {
			return nil
		}
		if err := r.shell.wait(ctx, changed); err != nil {
			return fmt.Errorf("sharding: group %q: wait for all instances: %w", r.group.Name, err)
		}
	}
}

// Rescale changes the number of instances and waits until the table has the new number. All old
// workers end before new ones start. The number outlives each node, but not the end of all nodes
// with the role: then the configured number applies again. 0 returns to the configured number. The
// error matches ErrInvalid, ErrRescaling while another change is not complete, or ErrStopped, or is
// that of ctx.
func (r *GroupRef) Rescale(ctx context.Context, count int) error {
	if count < 0 || count > groups.MaxInstances {
		return fmt.Errorf("%w: group %q: number of instances is %d, it must be from 0 to %d", ErrInvalid, r.group.Name, count, groups.MaxInstances)
	}
	if err := r.shell.rescale(ctx, r.group.Name, count); err != nil {
		return fmt.Errorf("sharding: group %q: change the number of instances to %d: %w", r.group.Name, count, err)
	}
	return nil
}

// Status returns the state of the group in the view of this node. The error is that of ctx or
// ErrStopped.
func (r *GroupRef) Status(ctx context.Context) (GroupStatus, error) {
	return r.shell.status(ctx, r.group.Name)
}

// GroupReply is the reply of an instance.
type GroupReply struct {
	// Nr is the number of the instance, Node its node.
	Nr      int
	Node    identity.Node
	Payload []byte
	// Err is the error of Route.Ask.
	Err error
}
