// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing

import (
	"cmp"
	"context"
	crand "crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/refold-io/refold/internal/engine"
	"github.com/refold-io/refold/internal/fielderror"
	"github.com/refold-io/refold/internal/hosting"
	"github.com/refold-io/refold/internal/replayfilter"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/snapshot"
	"github.com/refold-io/refold/store"
)

// Config configures a Runtime. The zero value is a runtime whose entities persist nothing.
type Config struct {
	// Store holds the events and the snapshots of all types without a HostOptions.Store. The runtime
	// does not close it. Defaults to none: then the entities of these types persist nothing.
	Store store.DB
	// Logger receives the log. Defaults to none.
	Logger *slog.Logger
	// Observer receives the events of the runtime, for metrics and traces. Defaults to none.
	Observer Observer
	// MaxRecoveries is the number of entities that may recover, or check for newer events (see
	// HostOptions.SharedJournal), at the same time. Defaults to 50.
	MaxRecoveries int
	// RecoveryTimeout is the time after which a recovery without progress fails. Defaults to 30 s.
	RecoveryTimeout time.Duration
	// JournalBreaker is the circuit breaker around the journal. A journal.Immediate has none.
	JournalBreaker journal.BreakerConfig
	// SnapshotBreaker is the circuit breaker around the snapshot store.
	SnapshotBreaker snapshot.BreakerConfig
	// ReplayFilter configures the treatment of histories with concurrent writers.
	ReplayFilter journal.FilterConfig
	// Writer limits the writes that wait for the journal.
	Writer journal.WriterConfig
	// MaxEventSize is the size of the largest encoded event, in bytes. Defaults to 1 MiB and can't
	// be more than 16 MiB.
	MaxEventSize int
	// Workers is the number of goroutines that handle the messages that their senders do not handle
	// themselves, see HostOptions.WorkersOnly. Defaults to GOMAXPROCS.
	Workers int
	// Now returns the time for events, snapshots, Context.Now and Type.Deadline. It may jump; timers
	// and timeouts use a steady clock. It must be safe for concurrent use. Defaults to time.Now.
	Now func() time.Time
}

func (c Config) withDefaults() Config {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	c.MaxRecoveries = cmp.Or(c.MaxRecoveries, 50)
	c.RecoveryTimeout = cmp.Or(c.RecoveryTimeout, 30*time.Second)
	c.MaxEventSize = cmp.Or(c.MaxEventSize, 1<<20)
	c.Workers = cmp.Or(c.Workers, runtime.GOMAXPROCS(0))
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

func (c Config) validate() error {
	var errs fielderror.Errors
	if c.MaxRecoveries < 1 {
		errs.Addf("Config.MaxRecoveries", "is %d, it must be at least 1", c.MaxRecoveries)
	}
	fielderror.NotNegative(&errs, "Config.RecoveryTimeout", c.RecoveryTimeout)
	if c.MaxEventSize < 1 || c.MaxEventSize > 16<<20 {
		errs.Addf("Config.MaxEventSize", "is %d, it must be between 1 and %d", c.MaxEventSize, 16<<20)
	}
	if c.Workers < 1 {
		errs.Addf("Config.Workers", "is %d, it must be at least 1", c.Workers)
	}
	if c.Writer.OnCommit != nil {
		errs.Addf("Config.Writer.OnCommit", "is set, use Observer.Commit")
	}
	return errs.Err(ErrInvalid)
}

// Runtime runs entities over a journal and a snapshot store, see Config.Store and HostOptions.Store.
// It is safe for concurrent use.
type Runtime struct {
	clock
	propagation
	routes    //nolint:unused // the functions of package hosting use it
	inspected //nolint:unused // likewise

	cfg       Config
	log       *slog.Logger
	obs       *Observer
	watched   bool // the observer observes commands
	filter    *replayfilter.Filter
	workers   *workers
	effects   sync.Pool     // of *engine.Effects
	yielding  atomic.Uint32 // callers in letCallersRun
	ops       sync.Pool     // of *engine.Op
	recovery  pool
	stores    pool // saves and deletions
	probes    pool // settle unknown outcomes, which must not wait for saves and deletions
	async     sync.WaitGroup
	calls     callPool
	ctx       context.Context //nolint:containedctx // ends with the runtime; for background work
	cancel    context.CancelFunc
	name      string // the first part of writer IDs
	seed      uint64
	hash      maphash.Seed
	writers   atomic.Uint64
	deletions [64]chan struct{} // see lockDeletions

	mu          sync.RWMutex
	hosts       map[string]*host
	storages    []*storage   // of Config.Store, then those of HostOptions.Store
	connections []connection // that lead to this runtime
	closed      bool
	ended       chan struct{} // Close has ended
}

// propagation gives package sharding access to Observer.Inject and Observer.Extract.
type propagation = hosting.Propagation

// inspected gives package inspect access to the entities in memory.
type inspected = hosting.Inspected

// routes lets package sharding add the entities of its regions and proxies.
type routes = hosting.Routes //nolint:unused // see Runtime

// Connect lets the parts of entities of this runtime, such as a delivery.Outbox, reach the entities
// that another runtime of the process hosts. It works in one direction and reaches no runtimes beyond
// the other one. A type that this runtime hosts itself has precedence. The connection ends with the
// other runtime, so a program that opens that runtime again also connects it again.
//
// Senders of the same type and ID in two runtimes are one sender for a delivery.Inbox, which would drop
// deliveries of one of them. Types that send to the same entities need different names.
//
// The regions and proxies of a cluster's node need no Connect: each runtime that was passed to
// sharding.Host or sharding.Proxy reaches all of them. The error matches ErrInvalid if other is nil
// or r, or ErrClosed if it is closed.
func (r *Runtime) Connect(other *Runtime) error {
	if other == nil || other == r {
		return fmt.Errorf("%w: connect: the other runtime is nil or the same one", ErrInvalid)
	}
	other.mu.Lock()
	defer other.mu.Unlock()
	if other.closed {
		return fmt.Errorf("connect: the other runtime: %w", ErrClosed)
	}
	end := hosting.AddRoutes(r, func(typeName string) func(hosting.Message) error {
		if h := other.hostOf(typeName); h != nil {
			return h.route
		}
		return nil
	})
	other.connections = append(slices.DeleteFunc(other.connections, connection.ended), connection{r, end})
	return nil
}

// connection is the effect of a Connect, as the other runtime knows it.
type connection struct {
	from *Runtime
	end  func()
}

func (c connection) ended() bool {
	select {
	case <-c.from.ended:
		return true
	default:
		return false
	}
}

// hostOf returns the host of a type, nil if the runtime does not host it.
func (r *Runtime) hostOf(typeName string) *host {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.hosts[typeName]
}

// Open starts a runtime. Close it before the stores that it uses.
func Open(cfg Config) (*Runtime, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("open a runtime: %w", err)
	}
	r := &Runtime{clock: clock{opened: time.Now(), wall: cfg.Now}, hash: maphash.MakeSeed(), cfg: cfg, log: cfg.Logger, hosts: make(map[string]*host), ended: make(chan struct{})}
	r.obs = &r.cfg.Observer
	r.propagation = hosting.NewPropagation(r.inject, r.extract)
	r.inspected = hosting.NewInspected(inspector{r})
	for i := range r.deletions {
		r.deletions[i] = make(chan struct{}, 1)
	}
	r.effects.New = func() any { return &engine.Effects{Ops: &r.ops} }
	r.watched = r.obs.Begin != nil || r.obs.Command != nil
	var random [20]byte
	if _, err := io.ReadFull(crand.Reader, random[:]); err != nil {
		return nil, fmt.Errorf("open a runtime: read random bytes: %w", err)
	}
	r.name = base64.RawURLEncoding.EncodeToString(random[:12])
	r.seed = binary.BigEndian.Uint64(random[12:])
	var err error
	if r.filter, err = replayfilter.New(cfg.ReplayFilter); err != nil {
		return nil, fmt.Errorf("open a runtime: %w", err)
	}
	own, err := r.openStorage(cfg.Store)
	if err != nil {
		return nil, fmt.Errorf("open a runtime: %w", err)
	}
	r.storages = []*storage{own}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	r.workers = newWorkers(cfg.Workers, &r.effects)
	r.recovery.limit = cfg.MaxRecoveries
	r.stores.limit = 16
	r.probes.limit = 16
	return r, nil
}

// Store returns Config.Store, nil if there is none.
func (r *Runtime) Store() store.DB { return r.cfg.Store }

// Close stops the runtime. Entities handle the commands that they have received and stop; the
// writer writes all queued events. If ctx ends first, the remaining work is aborted: callers get
// ErrStopped, or ErrOutcomeUnknown if a write was in flight, and Close returns the cause of the
// context. When Close returns, all goroutines of the runtime have ended, except those in which user
// code, or a call of a store that ignores its context, still runs after the end of ctx. A second Close
// returns nil when all goroutines have ended, and the cause of its own ctx if that ends first.
func (r *Runtime) Close(ctx context.Context) error {
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		select {
		case <-r.ended:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	r.closed = true
	for _, c := range r.connections {
		c.end()
	}
	r.connections = nil
	hosts, storages := slices.Collect(maps.Values(r.hosts)), r.storages
	r.mu.Unlock()

	var errs []error
	for _, h := range hosts {
		h.close()
	}
	for _, h := range hosts {
		if err := h.drained(ctx); err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) == 0 { // let saves of snapshots end
		saved := make(chan struct{})
		go func() {
			r.stores.wait()
			close(saved)
		}()
		select {
		case <-saved:
		case <-ctx.Done():
			errs = append(errs, fmt.Errorf("wait for saves and deletions: %w", context.Cause(ctx)))
		}
	}
	r.cancel()
	if len(errs) > 0 {
		for _, h := range hosts {
			h.each(func(e *entity) { e.stop(stopKill) })
		}
	}
	quiet := make(chan struct{})
	go func() {
		for _, h := range hosts {
			<-h.empty // the turns of callers have ended
		}
		r.workers.close()
		r.async.Wait()
		r.recovery.wait()
		r.stores.wait()
		r.probes.wait()
		close(quiet)
	}()
	select {
	case <-quiet:
	case <-ctx.Done():
		select {
		case <-quiet:
		case <-time.After(closeGrace):
			errs = append(errs, fmt.Errorf("user code or a call of a store still runs: %w", context.Cause(ctx)))
		}
	}
	for _, s := range storages {
		if s.writer != nil {
			errs = append(errs, s.writer.Close(ctx))
		}
	}
	go func() {
		<-quiet
		close(r.ended)
	}()
	return errors.Join(errs...)
}

// closeGrace is how long Close waits after the end of its context for work that this end has
// aborted.
const closeGrace = 100 * time.Millisecond

// newWriter returns a writer ID for a new incarnation. It is unique among all runtimes.
func (r *Runtime) newWriter() string {
	return r.name + "." + strconv.FormatUint(r.writers.Add(1), 36)
}

// Resident returns the number of entities of each type that are in memory.
func (r *Runtime) Resident() map[string]int {
	r.mu.RLock()
	defer r.mu.RUnlock()
	resident := make(map[string]int, len(r.hosts))
	for name, h := range r.hosts {
		resident[name] = h.resident()
	}
	return resident
}

// dropped reports a message that reaches no entity.
func (r *Runtime) dropped(id string, message any, err error) {
	r.log.Warn("message dropped", undelivered(id, message, err)...)
	r.observeDropped(id, message, err)
}

// notDelivered reports an attempt to deliver a command of a part that reaches no entity.
func (r *Runtime) notDelivered(id string, command any, err error) {
	r.log.Warn("delivery failed, its outbox will send it again", undelivered(id, command, err)...)
	r.observeDropped(id, command, err)
}

func undelivered(id string, message any, err error) []any {
	return []any{slog.String("persistence_id", id), slog.String("message", fmt.Sprintf("%T", message)), slog.Any("error", err)}
}

func (r *Runtime) observeDropped(id string, message any, err error) {
	if r.obs.Dropped != nil {
		r.observe(func() { r.obs.Dropped(DroppedInfo{PersistenceID: id, Message: message, Err: err}) })
	}
}
