// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package hosting holds the types by which package eventsourcing works together with the packages
// sharding and delivery. They are internal, so that no other program depends on them.
//
//   - Package sharding carries messages between nodes: see Message, Sharding and Remote.
//   - Package delivery adds parts to the state of an entity: see Part and PartType.
//
// Exported types of these packages embed types of this package under unexported names, and so get
// unexported methods. Only the functions of this package call these methods. No other package can
// call or implement them.
package hosting

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/refold-io/refold/internal/engine"
	"github.com/refold-io/refold/internal/loop"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/snapshot"
	"github.com/refold-io/refold/store"
)

// Signal is implemented by types that embed IsSignal. Programs can't add signals.
type Signal = engine.Signal

// IsSignal makes the struct that embeds it a Signal. It takes up no space.
type IsSignal = engine.IsSignal

// PartField is implemented by types that embed NeedsPart.
type PartField interface{ needsPart() }

// NeedsPart marks a field of a state that has no effect without an entry in Type.Parts.
type NeedsPart struct{}

func (NeedsPart) needsPart() {}

// PartType is an entry of eventsourcing.Type.Parts. H is the type of the handlers of its signals.
type PartType[S, H any] interface{ definition() *PartDefinition[S, H] }

// PartDefinition implements PartType.
type PartDefinition[S, H any] struct {
	// Name is stored with the state, so it must never change.
	Name string
	// Field returns the part of a state.
	Field   func(*S) Part
	Signals []H
}

func (d *PartDefinition[S, H]) definition() *PartDefinition[S, H] { return d }

// DefinitionOf returns the definition of a part.
func DefinitionOf[S, H any](p PartType[S, H]) *PartDefinition[S, H] { return p.definition() }

// Part is a field of the state that acts when the events that changed the field are durable. Its
// methods must not block and are called on one goroutine at a time. All times are those of a
// monotonic clock: they never jump and cannot be compared with the times of another process.
type Part interface {
	// Field returns the address of the field.
	Field() any
	// Attach attaches a fresh instance to its entity. It is also called once when the type is
	// hosted, so that hosting the type returns its error.
	Attach(persistenceID, name string) error
	// Applying is called before each event is applied. The metadata is immutable, nil for none.
	Applying(seqNr uint64, metadata []byte)
	// Mark is called before the events of a command are applied.
	Mark()
	// Check is called after the events of a command were applied and before they are stored. An error
	// refuses the command: it is the reply, nothing is stored, and the instance is recovered. Events of
	// signals and of the history are not checked.
	Check() error
	// Replayed is called after each event of the history was applied. An error fails the recovery, because
	// the events contradict each other.
	Replayed() error
	// Recovered is called after a recovery, before any message is handled. It is not called for a
	// state that was recovered to an earlier event, because such an entity is read-only.
	Recovered(now time.Time) Outgoing
	// Durable reports that all events up to this number are stored.
	Durable(seqNr uint64, now time.Time) Outgoing
	// Tick is called at the time that Next returned.
	Tick(now time.Time) Outgoing
	// Next returns the time for Tick, zero for never. It is called after each of the other methods.
	// An idle entity stays in memory while Next is not zero.
	Next() time.Time
	// HasWork reports whether the state, including events that are not stored yet, has work.
	HasWork() bool
	// Admit reports whether the entity receives a signal. It is called right before the signal is
	// handled, and again if the signal is handled again.
	Admit(Signal) bool
}

// Outgoing is the work that a Part requests.
type Outgoing struct {
	// Sends are commands to other entities, in order.
	Sends []Send
	// Signals go to the entity itself.
	Signals []Signal
}

// Send is a command of a Part to another entity.
type Send struct {
	Type, ID string
	Command  any
	// Attempt counts the transmissions of the command, from 1.
	Attempt int
	// Metadata is the metadata of the event that requested the command. It determines the context
	// of the command, see eventsourcing.Observer.
	Metadata []byte
	// Answered receives the reply, on any goroutine, and returns the signal for the entity, nil for
	// none.
	Answered func(value any, err error) Signal
}

// Caller is the sender of a message.
type Caller interface {
	engine.Caller
	// Context returns the context of the sender.
	Context() context.Context
}

// Numbered is a Caller that carries the number of a transmission: see Message.Attempt.
type Numbered interface {
	Attempt() int
	SetAttempt(n int)
}

// Asker is a Caller that waits for the reply.
type Asker interface {
	Caller
	// Reply is called at most once.
	Reply(value any, err error)
}

// Start is a message that starts an entity and has no other effect. Its reply is nil.
type Start struct {
	// Indexed reports that the entity is in the index of Hooks.PendingWork.
	Indexed bool
}

// EncodedReply is a reply from another node, before it is decoded.
type EncodedReply []byte

// Message is a message to an entity, together with its caller. Packages pass it on until
// Host.Deliver takes it or Answer ends it. A package must not use a message after passing it on.
// The methods are safe for concurrent use.
type Message struct {
	id  string
	env *engine.Envelope
	own bool
}

// NewMessage returns a message to the entity with this ID. An own message comes from the entity
// itself.
func NewMessage(id string, env *engine.Envelope, own bool) Message {
	return Message{id: id, env: env, own: own}
}

// ID returns the own ID of the entity.
func (m Message) ID() string { return m.id }

// Command returns the command.
func (m Message) Command() any { return m.env.Message }

// Envelope returns the envelope.
func (m Message) Envelope() *engine.Envelope { return m.env }

// Own reports whether the entity has sent the message to itself.
func (m Message) Own() bool { return m.own }

// Asked reports whether a caller waits for the reply.
func (m Message) Asked() bool {
	_, waits := m.env.Caller.(Asker)
	return waits
}

// Context returns the context of the caller. The context may have no deadline. If no caller waits,
// it never ends.
func (m Message) Context() context.Context {
	if c, ok := m.env.Caller.(Caller); ok {
		return c.Context()
	}
	return context.Background()
}

// Attempt returns the number of the transmission of a command that a part sends, as in Send. It is 0
// for other commands.
func (m Message) Attempt() int {
	if c, ok := m.env.Caller.(Numbered); ok {
		return c.Attempt()
	}
	return 0
}

// SetAttempt sets the number of the transmission of a message that has arrived from another node.
func (m Message) SetAttempt(n int) {
	if c, ok := m.env.Caller.(Numbered); ok {
		c.SetAttempt(n)
	}
}

// Take claims the message before it is sent to another node. A caller that stops waiting after this
// gets ErrOutcomeUnknown. Take returns false if the caller has already stopped waiting; the message
// must not be sent in that case. Host.Deliver does not require Take.
func (m Message) Take() bool { return m.env.Caller == nil || m.env.Caller.Take() }

// Untake releases the claim of Take after the message could not be sent.
func (m Message) Untake() {
	if m.env.Caller != nil {
		m.env.Caller.Untake()
	}
}

// Answer ends the message with a reply. It does nothing if no caller waits.
func (m Message) Answer(value any, err error) {
	if r, waits := m.env.Caller.(Asker); waits {
		r.Reply(value, err)
	}
}

// AnswerEncoded is Answer with a reply that Carrier.AppendReply has encoded on another node. The
// caller must not modify data afterwards.
func (m Message) AnswerEncoded(data []byte) { m.Answer(EncodedReply(data), nil) }

// Sharding connects package sharding with the entities of one type on this node.
type Sharding struct {
	Hooks Hooks
	// Follow makes the host a standby for entities of other nodes, see Host.Follow. Defaults to nil.
	Follow *Follow
	// Host is set when the entities are hosted with options that Shard has changed.
	Host Host
}

// HostOption is the part of eventsourcing.HostOptions that only package sharding sets.
type HostOption struct{ sharding *Sharding }

func (o *HostOption) shard(s *Sharding) { o.sharding = s }

// Shard adds the sharding of a type to its eventsourcing.HostOptions.
func Shard(options interface{ shard(s *Sharding) }, s *Sharding) { options.shard(s) }

// ShardingOf returns the argument of Shard, nil if it was not called.
func ShardingOf(o HostOption) *Sharding { return o.sharding }

// NodeLocal reports whether a snapshot store is local to this node although the journal is not: an
// entity that moves to another node finds its events there, but not its snapshots.
func NodeLocal(j journal.Journal, s snapshot.Store) bool {
	local, ok := s.(snapshot.Local)
	if !ok || !local.Local() {
		return false
	}
	local, ok = journal.As[snapshot.Local](j)
	return !ok || !local.Local()
}

// Hooks are calls of a host of entities to package sharding. None may block.
type Hooks struct {
	// Route receives all messages for entities of the type, also those that entities send. An error
	// means that the message was not handed over and will not be answered. Required.
	Route func(Message) error
	// Gone reports each entity that has left memory. passivated reports whether the entity stopped
	// by Effect.Passivate, because it was idle, or by Host.Passivate. The next message starts the
	// entity again.
	Gone func(id string, passivated bool)
	// Busy reports each entity that Host.Passivate could not stop because it has work to do.
	Busy func(id string)
	// Escalated requests the end of the host, because of the error of an entity.
	Escalated func(cause error)
	// Killed is the error for commands that an entity had not handled when Host.Kill stopped it. It
	// must match ErrStopped.
	Killed error
	// PendingWork reports that an entity has, or is about to have, pending work: an unconfirmed delivery
	// or a deadline. The entity stores no more events until ready is called, at most once and on any
	// goroutine, because the index of such entities has the entity. Nil means that there is no index.
	PendingWork func(id string, ready func())
	// WorkSettled reports that an entity has no pending work and that all its events are stored. It
	// may be removed from the index, and an earlier call of ready has no effect any more. It is called
	// some time after the end of the work, and before Gone.
	WorkSettled func(id string)
	// Remembered reports that an entity without events stays in memory: sharding remembers each
	// entity that runs.
	Remembered bool
	// Meter returns the meter that counts the load of an entity. Nil if no load is measured.
	Meter func(id string) *Meter
}

// Meter counts the load of some entities. It has the size of a cache line.
type Meter struct {
	// Busy is the time in turns, in nanoseconds. Handled is the number of messages that turns have
	// taken from mailboxes. Both only increase. Queued is the number of messages in mailboxes.
	Busy    atomic.Int64
	Handled atomic.Uint64
	Queued  atomic.Int64
	_       [40]byte
}

// Host runs the entities of one type on this node. Its methods are safe for concurrent use.
type Host interface {
	// Deliver hands a message to its entity, which is started if it is not in memory. An error
	// means that the message was not handed over and will not be answered.
	Deliver(Message) error
	// Rouse starts an entity without waiting. indexed is that of Start. done receives the outcome of
	// the recovery. It must not block and may be nil. An error means that done will not be called.
	Rouse(id string, indexed bool, done func(error)) error
	// Passivate stops an entity if it has no pending work. It reports whether the entity is in
	// memory. If so, a call of Hooks.Gone or Hooks.Busy follows.
	Passivate(id string) bool
	// Drain stops an entity after it has handled the commands in its mailbox. The result and the
	// calls of hooks are as in Passivate.
	Drain(id string) bool
	// Kill stops an entity at once. Its commands fail with Hooks.Killed, except those whose events
	// are being stored. The result and the calls of hooks are as in Passivate.
	Kill(id string) bool
	// Close stops all entities and ends the host, see eventsourcing.Local.Close.
	Close(ctx context.Context) error
	// InMemory reports whether an entity is in memory, and whether it has recovered. Hooks.Gone may
	// still be pending for an earlier instance.
	InMemory(id string) (found, recovered bool)
	// Wake is eventsourcing.Local.Wake for the entities that covers accepts. It starts them through
	// Hooks.Route.
	Wake(ctx context.Context, covers func(id string) bool) (started int, err error)
	// Follow keeps the states of the entities that Sharding.Follow selects, until ctx ends: it applies
	// each of their events when the journal has stored it. A recovery of such an entity on this node
	// begins with its state. It does nothing without Sharding.Follow. It is called once.
	Follow(ctx context.Context)
	// Unfollow drops the states that Follow.Covers no longer selects.
	Unfollow()
	// Followed returns the position in the journal up to which Follow has applied all events, and the
	// number of states.
	Followed() (journal.Offset, int)
	// Peek passes the state of a followed entity to read, unless the state lacks events that were
	// stored longer ago than the given time. It reports whether it has called read, which must not
	// change the state or keep a part of it.
	Peek(id string, within time.Duration, read func(state any)) bool
}

// Follow selects entities of other nodes whose states a host keeps.
type Follow struct {
	// Covers reports whether the host keeps the state of an entity. It must not block. Its result may
	// change, see Host.Unfollow.
	Covers func(id string) bool
	// Limit is the number of states. Above it, the host drops those with the oldest events. At least 1.
	Limit int
}

// Propagation carries values of a context with a command, see eventsourcing.Observer. An
// eventsourcing.Runtime embeds one.
type Propagation struct {
	inject  func(context.Context) []byte
	extract func(context.Context, []byte) context.Context
}

// NewPropagation returns a Propagation.
func NewPropagation(inject func(context.Context) []byte, extract func(context.Context, []byte) context.Context) Propagation {
	return Propagation{inject: inject, extract: extract}
}

func (p *Propagation) propagation() *Propagation { return p }

// Inject returns the encoded values of a context, nil for none.
func Inject(runtime interface{ propagation() *Propagation }, ctx context.Context) []byte { //nolint:revive // the runtime is the receiver
	return runtime.propagation().inject(ctx)
}

// Extract returns a context with the values that Inject has put into metadata.
func Extract(runtime interface{ propagation() *Propagation }, ctx context.Context, metadata []byte) context.Context { //nolint:revive // see above
	return runtime.propagation().extract(ctx, metadata)
}

// Routes find the entities of types that a runtime does not host. An eventsourcing.Runtime embeds
// them. They are safe for concurrent use.
type Routes struct {
	mu      sync.RWMutex
	finders []*RouteFinder
}

// RouteFinder returns the function that passes on messages to the entities of a type, nil for an
// unknown type. Neither function may block. An error of the result means that the message was not
// passed on and will not be answered.
type RouteFinder func(typeName string) func(Message) error

func (r *Routes) routes() *Routes { return r }

// AddRoutes lets parts of a runtime's entities reach the entities of further types. The earliest
// RouteFinder that knows a type has precedence. The function remove ends the effect.
func AddRoutes(runtime interface{ routes() *Routes }, find RouteFinder) (remove func()) {
	r := runtime.routes()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.finders = append(slices.Clip(r.finders), &find)
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.finders = slices.DeleteFunc(slices.Clone(r.finders), func(f *RouteFinder) bool { return f == &find })
	}
}

// FindRoute returns the route to the entities of a type, nil if there is none.
func FindRoute(runtime interface{ routes() *Routes }, typeName string) func(Message) error {
	r := runtime.routes()
	r.mu.RLock()
	finders := r.finders // never changed in place
	r.mu.RUnlock()
	for _, find := range finders {
		if route := (*find)(typeName); route != nil {
			return route
		}
	}
	return nil
}

// Remote gives package sharding access to entities on other nodes. E is eventsourcing.Entities, R
// is *eventsourcing.Runtime. Its methods are safe for concurrent use.
type Remote[E, R any] interface {
	// Entities returns the entities of a type. The runtime lists the IDs and may be nil. route
	// receives each message and must not block. An error of route means that the message was not
	// handed over and will not be answered.
	Entities(rt R, l Listing, route func(Message) error) E
	Carrier
}

// Listing describes the IDs of a type to a node that hosts no entities of it.
type Listing struct {
	// Type is the name of the type.
	Type string
	// Store holds the events. nil means the store of the runtime.
	Store store.DB
	// EntityID is eventsourcing.Type.EntityID, nil for the default.
	EntityID func(persistenceID string) (id string, ok bool)
}

// RemoteAccess is embedded in eventsourcing.Protocol. A new T is the Remote.
type RemoteAccess[E, R, T any, P interface {
	*T
	Remote[E, R]
}] struct{}

func (RemoteAccess[E, R, T, P]) remote() Remote[E, R] { return P(new(T)) }

// RemoteOf returns a Remote for the entities with a protocol.
func RemoteOf[E, R any](protocol interface{ remote() Remote[E, R] }) Remote[E, R] {
	return protocol.remote()
}

// Carrier encodes replies and contexts for messages between nodes. It is safe for concurrent use.
type Carrier interface {
	// NewMessage returns a message that has arrived from another node. The context supplies values,
	// such as those of a trace; the deadline, zero for none, is that of the caller. answered
	// receives the reply once, on any goroutine, and must not block; it is nil if no caller waits.
	// The charge, which may be nil, is freed when the entity takes the message to handle it, and
	// held again while the entity keeps the message for later.
	NewMessage(ctx context.Context, id string, command any, deadline time.Time, answered func(value any, err error), charge *loop.Charge) Message
	// AppendReply appends the encoded form of a reply. A value that can't be encoded becomes an
	// error that matches ErrNoReply, because the command was handled.
	AppendReply(dst []byte, value any, err error) []byte
}

// Inspector gives package inspect access to the entities in the memory of a runtime.
type Inspector interface {
	// Live calls read with the state of an entity, between two messages, if the entity runs. It does not
	// start the entity. The state may have events that are not stored yet, unless Live returns nil: then
	// all events up to the sequence number are durable. If a write fails, read is called again. The result
	// is the name of the presence.
	Live(ctx context.Context, typeName, id string, read func(state any, seqNr uint64)) (presence string, err error)
	// Waiting returns figures about the entities of each type, ordered by type.
	Waiting() []Waiting
	// BreakersOpen reports whether a circuit breaker around a journal or a snapshot store is open.
	BreakersOpen() (journal, snapshots bool)
}

// Waiting describes the messages that wait for entities of a type in memory.
type Waiting struct {
	Type string
	// Resident is the number of entities in memory.
	Resident int
	// Inbox is the number of messages in mailboxes, and Stash the number of messages that wait in
	// entities. If there are more than 10,000 entities, both are estimates.
	Inbox, Stash int
}

// Inspected is embedded in a runtime.
type Inspected struct{ inspector Inspector }

// NewInspected returns an Inspected.
func NewInspected(i Inspector) Inspected { return Inspected{i} }

func (i *Inspected) inspected() Inspector { return i.inspector }

// InspectorOf returns the Inspector of a runtime.
func InspectorOf(runtime interface{ inspected() Inspector }) Inspector { return runtime.inspected() }

// Delivery is an unconfirmed delivery of a Part.
type Delivery struct {
	// Part is the name of the part. The caller of Deliveries sets it.
	Part string
	Nr   uint64
	// Type and ID name the receiver.
	Type, ID string
	// Command is the Go type of the message, and Payload its encoded form in msgpack, nil if it cannot be
	// encoded.
	Command string
	Payload []byte
	// Attempts counts the transmissions by this instance. Err is the last error of the delivery, nil for
	// none.
	Attempts int
	Err      error
}

// Deliverer is implemented by a Part that sends until the receiver confirms.
type Deliverer interface {
	// Deliveries returns up to limit unconfirmed deliveries, the oldest first, and the number of all.
	Deliveries(limit int) (list []Delivery, total int)
}
