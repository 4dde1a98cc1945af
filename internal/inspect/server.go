// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package inspect provides the read services of a process for operators, and their client: the
// persistence IDs, events, states and snapshots of a database, the projections and the process
// itself. The console and the operator's commands use it. Services and clients send the requests of
// package adminrpc over a transport.AdminClient.
//
//	server, err := inspect.NewServer(inspect.Config{
//		Runtime: rt, Types: []inspect.Type{inspect.TypeOf(accountType)},
//	})
//	...
//	client := inspect.NewClient(server.AdminClient())
//	page, err := client.Events(ctx, "", inspect.EventQuery{ID: "account|42", Backward: true})
//
// # Guarantees
//
//   - No request changes stored data. Pauses, rebuilds and verifications are actions: they need
//     Config.AllowActions, and the right to act.
//   - The size of each reply is bounded, and so is the number of records that a request reads,
//     except for a state without a snapshot or a checkpoint below its number.
//   - A damaged or unknown payload is reported in its place and does not fail the page.
//   - Config.Redact is applied before a reply leaves the process, and before a filter searches a
//     text.
package inspect

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/internal/adminrpc"
	"github.com/refold-io/refold/internal/fielderror"
	"github.com/refold-io/refold/internal/panics"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/snapshot"
	"github.com/refold-io/refold/store"
	"github.com/refold-io/refold/transport"
)

// Config configures a Server.
type Config struct {
	// Runtime is the runtime of the program, for entities in memory. Defaults to none.
	Runtime *eventsourcing.Runtime
	// Store is the database. It is not closed. Defaults to Runtime.Store.
	Store store.DB
	// Types are the entity types whose states can be computed. Defaults to none.
	Types []Type
	// Projections are the projections of the program. Their names must differ. Defaults to none.
	Projections []Projection
	// Meter measures the load of the runtime, whose Observer must include that of the meter.
	// Defaults to none.
	Meter *Meter
	// Redact reports whether a field of an event, a state, a snapshot or a delivery is replaced by
	// "(redacted)" in replies. It is called for each field and each value that contains fields,
	// concurrently. A field is replaced if it panics. Keys are shown unless the map is replaced.
	// Defaults to none.
	Redact func(Field) bool
	// AllowActions permits pauses and rebuilds of projections and verifications of the journal.
	AllowActions bool
	// Version is the version of the program. Defaults to that of its main module.
	Version string
	// Logger receives the log of actions in this process. Defaults to none.
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	if c.Store == nil && c.Runtime != nil {
		c.Store = c.Runtime.Store()
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

func (c Config) validate() error {
	var errs fielderror.Errors
	names := map[string]bool{}
	for i := range c.Types {
		t := &c.Types[i]
		errs.Add("Config.Types", t.Check())
		if names[t.Name] {
			errs.Addf("Config.Types", "contains the type %q twice", t.Name)
		}
		names[t.Name] = true
	}
	clear(names)
	for _, p := range c.Projections {
		switch {
		case p == nil:
			errs.Addf("Config.Projections", "contains nil")
		case names[p.Name()]:
			errs.Addf("Config.Projections", "contains the projection %q twice", p.Name())
		default:
			names[p.Name()] = true
		}
	}
	return errs.Err(ErrInvalid)
}

// Server answers the requests for one process. It is safe for concurrent use.
type Server struct {
	cfg       Config
	started   time.Time
	version   string          // of the program
	refold    string          // the version of Refold
	journal   journal.Journal // nil for none
	snapshots snapshot.Store  // nil for none
	folds     *folds          // nil without types or a journal

	mu        sync.Mutex
	services  map[string]handler // of AdminClient
	node      Node               // nil before Register
	closed    bool
	ctx       context.Context //nolint:containedctx // ends with the server; for the verification
	cancel    context.CancelFunc
	verifying verifying
}

type handler struct {
	service *adminrpc.Service
	handle  transport.AdminHandler
}

// Node is the node of a cluster: *cluster.Node.
type Node interface {
	HandleAdmin(service string, commands map[string]transport.AdminRight, h transport.AdminHandler)
}

// NewServer returns a server. Close it before the runtime and the database.
func NewServer(cfg Config) (*Server, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("inspect: %w", err)
	}
	s := &Server{cfg: cfg, started: time.Now()}
	s.version, s.refold = versions()
	s.version = cmp.Or(cfg.Version, s.version)
	if cfg.Store != nil {
		s.journal, s.snapshots = cfg.Store.Journal(), cfg.Store.Snapshots()
	}
	if s.journal != nil && len(cfg.Types) > 0 {
		var err error
		if s.folds, err = newFolds(s.journal, s.snapshots); err != nil {
			return nil, fmt.Errorf("inspect: %w", err)
		}
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.services = map[string]handler{}
	for name, h := range map[string]handler{
		InspectService:    {inspectService(), nil},
		ProjectionService: {projectionService(), nil},
		RuntimeService:    {runtimeService(), nil},
	} {
		service := h.service
		h.handle = adminrpc.Serve(service, func(ctx context.Context, operator string, r *request) (reply, error) {
			return s.answer(ctx, operator, service, r)
		})
		s.services[name] = h
	}
	return s, nil
}

// Register adds the services to a node, so that operators can reach them.
func (s *Server) Register(node Node) {
	s.mu.Lock()
	s.node = node
	s.mu.Unlock()
	for name, h := range s.services {
		node.HandleAdmin(name, h.service.Commands, h.handle)
	}
}

// Close removes the services from their node, ends the verification and frees the checkpoints. It
// waits for the requests in progress until ctx ends. A second Close returns nil.
func (s *Server) Close(ctx context.Context) error {
	s.mu.Lock()
	node, closed := s.node, s.closed
	s.closed = true
	s.mu.Unlock()
	if closed {
		return nil
	}
	if node != nil {
		for name := range s.services {
			node.HandleAdmin(name, nil, nil)
		}
	}
	s.cancel()
	s.verifying.wait()
	if s.folds != nil {
		return s.folds.close(ctx)
	}
	return nil
}

// AdminClient returns a client that reaches the services of this process, without a network. After
// Register it reaches all services of the node. It ignores the names of nodes for the services of
// this package.
func (s *Server) AdminClient() transport.AdminClient { return local{s} }

// local implements transport.AdminClient for one process.
type local struct{ *Server }

// localOperator is the name of the operator of AdminClient.
const localOperator = "local"

// Ask implements transport.AdminClient.
func (l local) Ask(ctx context.Context, service string, right transport.AdminRight, node string, request []byte) ([]byte, error) {
	if len(request) > transport.MaxAdminRequest {
		return nil, fmt.Errorf("%w: %d bytes, the limit is %d", transport.ErrTooLarge, len(request), transport.MaxAdminRequest)
	}
	h, ok := l.services[service]
	if !ok {
		l.mu.Lock()
		to, reaches := l.node.(interface {
			AdminClient(operator string) transport.AdminClient
		})
		l.mu.Unlock()
		if reaches {
			return to.AdminClient(localOperator).Ask(ctx, service, right, node, request)
		}
		return newService(service, nil).Refuse(fmt.Errorf("%w: %.100q", ErrNoService, service)), nil
	}
	var to struct {
		Service string `json:"service"`
		Command string `json:"command"`
	}
	if err := json.Unmarshal(request, &to); err != nil {
		return h.service.Refuse(fmt.Errorf("%w: %w", ErrInvalid, err)), nil
	}
	want, known := h.service.Commands[to.Command]
	switch {
	case to.Service != service:
		return h.service.Refuse(fmt.Errorf("%w: a request for the service %.100q was sent to the service %.100q", transport.ErrDenied, to.Service, service)), nil
	case !known || want != right:
		return h.service.Refuse(fmt.Errorf("%w: command %.100q does not use the right to %v", transport.ErrDenied, to.Command, right)), nil
	}
	var answer []byte
	if p := panics.Call(func() { answer = h.handle(ctx, localOperator, service, right, request) }); p != nil {
		l.cfg.Logger.ErrorContext(ctx, "inspect: request panicked", slog.String("command", to.Command), slog.String("panic", panics.Text(p.Value)), slog.String("stack", string(p.Stack)))
		return nil, transport.ErrHandlerFailed
	}
	return answer, nil
}

// Close implements transport.AdminClient. It does nothing: the server stays open.
func (local) Close() error { return nil }

// answer answers a request for a service.
func (s *Server) answer(ctx context.Context, operator string, service *adminrpc.Service, r *request) (out reply, err error) {
	if service.Commands[r.Command] == transport.AdminAct {
		if !s.cfg.AllowActions {
			return out, fmt.Errorf("%w: the node permits no actions", transport.ErrDenied)
		}
		s.cfg.Logger.InfoContext(ctx, "inspect: action", slog.String("operator", operator), slog.String("service", r.Service), slog.String("command", r.Command), slog.String("name", r.Name))
	}
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	if closed {
		return out, fmt.Errorf("%w: the server is closed", ErrNoService)
	}
	switch r.Service {
	case ProjectionService:
		out.Projections, err = s.projection(ctx, r)
		return out, err
	case RuntimeService:
		out.Runtime = s.runtime()
		return out, nil
	}
	if s.journal == nil && r.Command != cmdTypes {
		return out, fmt.Errorf("%w: no journal", ErrUnsupported)
	}
	switch r.Command {
	case cmdTypes:
		out.Types, err = s.types(ctx)
	case cmdIDs:
		out.IDs, err = s.ids(ctx, *orZero(r.IDs))
	case cmdEvents:
		out.Events, err = s.events(ctx, *orZero(r.Events))
	case cmdEvent:
		out.Events, err = s.event(ctx, r.ID, r.Nr)
	case cmdState:
		out.State, err = s.state(ctx, *orZero(r.State))
	case cmdDifference:
		out.Difference, err = s.difference(ctx, *orZero(r.Difference))
	case cmdLive:
		out.Live, err = s.live(ctx, r.ID)
	case cmdSnapshots:
		out.Snapshots, err = s.listSnapshots(ctx, r.ID)
	case cmdSnapshot:
		out.State, err = s.snapshot(ctx, r.ID, r.Nr)
	case cmdPending:
		out.Pending, err = s.pending(ctx, r.ID)
	case cmdTail:
		out.Tail, err = s.tail(ctx, *orZero(r.Tail))
	case cmdVerify, cmdVerifyStart, cmdVerifyStop:
		out.Verify, err = s.verification(r.Command) //nolint:contextcheck // a verification outlives the request; Close ends it
	default:
		err = fmt.Errorf("%w: unknown command %.100q", ErrInvalid, r.Command)
	}
	return out, err
}

func orZero[T any](p *T) *T {
	if p == nil {
		return new(T)
	}
	return p
}

// Limits of replies. The JSON of a reply stays below 1 MiB, the default limit of a frame.
const (
	pageBytes    = 384 << 10 // of payloads and texts in a page, with the escapes of JSON
	cellBytes    = 16 << 10  // of a payload in a page
	payloadBytes = 384 << 10 // of a payload outside of a page
	cutBytes     = 2 << 10   // of the beginning of a payload that is too long
	maxExamined  = 5000      // records or IDs that a page examines
	maxItems     = 100       // numbers and types in a request, snapshots in a reply
	maxText      = 1 << 10   // of an error
	maxTags      = 20
	maxTag       = 256
	maxTypes     = 1000
)

// escaped returns an upper bound of the size of a text in a reply.
func escaped(text string) int {
	n := escapedJSON(text)
	for i := range len(text) {
		if c := text[i]; c < 0x20 || c == '"' || c == '\\' {
			n += 5
		}
	}
	return n
}

// escapedJSON returns the size of a JSON text in a reply, which escapes some characters to six
// bytes.
func escapedJSON[T ~string | ~[]byte](text T) int {
	n := len(text)
	for i := range len(text) {
		if c := text[i]; c == '<' || c == '>' || c == '&' {
			n += 5
		}
	}
	return n
}

// cut returns the beginning of a text.
func cut(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit] + "…"
}

// limited returns a requested limit of a page.
func limited(limit, byDefault, most int) int {
	if limit <= 0 {
		return byDefault
	}
	return min(limit, most)
}

// types describes the entity types and the database.
func (s *Server) types(ctx context.Context) (*Catalog, error) {
	c := &Catalog{Journal: s.journal != nil, Snapshots: s.snapshots != nil, Redacts: s.cfg.Redact != nil, Acts: s.cfg.AllowActions}
	var resident map[string]int
	if s.cfg.Runtime != nil {
		resident = s.cfg.Runtime.Resident()
	}
	for i := range s.cfg.Types {
		c.Types = append(c.Types, TypeView{Name: s.cfg.Types[i].Name, Linked: true})
	}
	for name := range resident {
		if !slices.ContainsFunc(c.Types, func(t TypeView) bool { return t.Name == name }) {
			c.Types = append(c.Types, TypeView{Name: name, Problem: "the type was not passed to the console"})
		}
	}
	slices.SortFunc(c.Types, func(a, b TypeView) int { return strings.Compare(a.Name, b.Name) })
	c.Types = c.Types[:min(len(c.Types), maxTypes)]
	for i := range c.Types {
		n, hosted := resident[c.Types[i].Name]
		c.Types[i].Resident, c.Types[i].Hosted = n, hosted
	}
	if s.journal == nil {
		return c, nil
	}
	_, c.Lists = journal.As[journal.IDLister](s.journal)
	querier, ok := journal.As[journal.Querier](s.journal)
	if c.Queries = ok; !ok {
		return c, nil
	}
	var err error
	c.End, err = querier.End(ctx)
	return c, err
}

// ids lists persistence IDs.
func (s *Server) ids(ctx context.Context, q IDQuery) (*IDPage, error) {
	lister, ok := journal.As[journal.IDLister](s.journal)
	if !ok {
		return nil, fmt.Errorf("%w: no list of persistence IDs", ErrUnsupported)
	}
	prefix, adopting := q.Prefix, (*Type)(nil)
	if q.Type != "" {
		prefix = q.Type + "|" + q.Prefix
		i := slices.IndexFunc(s.cfg.Types, func(t Type) bool { return t.Name == q.Type })
		if i >= 0 && s.cfg.Types[i].adopts {
			adopting, prefix = &s.cfg.Types[i], ""
		}
	}
	if len(prefix) > journal.MaxIDLength || !utf8.ValidString(prefix) || strings.IndexByte(prefix, 0) >= 0 {
		return nil, fmt.Errorf("%w: the prefix is not the beginning of a persistence ID", ErrInvalid)
	}
	if q.After != "" && journal.CheckID(q.After) != nil {
		return nil, fmt.Errorf("%w: After is not a persistence ID", ErrInvalid)
	}
	page, limit, left, examined := &IDPage{}, limited(q.Limit, 100, 500), pageBytes, 0
	for id, err := range s.idsFrom(ctx, lister, prefix, q.After) {
		if err != nil {
			return nil, fmt.Errorf("list the persistence IDs: %w", err)
		}
		if len(page.IDs) == limit || left < 0 || examined == maxExamined {
			return page, nil
		}
		examined++
		page.Next = id
		if !strings.HasPrefix(id, prefix) {
			break // the order is bytewise
		}
		if journal.IsReserved(id) && !strings.HasPrefix(prefix, journal.ReservedPrefix) {
			continue
		}
		view := s.idView(id)
		if adopting != nil {
			own, ok := adopting.EntityID(id)
			if !ok || !strings.HasPrefix(own, q.Prefix) {
				continue
			}
			view.Type, view.EntityID = adopting.Name, own
		}
		if view.Highest, err = s.journal.HighestSequenceNr(ctx, id); err != nil {
			return nil, fmt.Errorf("highest number of %q: %w", id, err)
		}
		page.IDs = append(page.IDs, view)
		left -= 2*escaped(id) + 64
	}
	page.Next = ""
	return page, nil
}

// idsFrom yields the persistence IDs from a prefix on, or after an ID.
func (s *Server) idsFrom(ctx context.Context, lister journal.IDLister, prefix, after string) iter.Seq2[string, error] {
	if prefix == "" || after >= prefix {
		return lister.PersistenceIDs(ctx, after)
	}
	return func(yield func(string, error) bool) {
		if journal.CheckID(prefix) == nil { // the list begins after it
			highest, err := s.journal.HighestSequenceNr(ctx, prefix)
			if (err != nil || highest > 0) && (!yield(prefix, err) || err != nil) {
				return
			}
		}
		for id, err := range lister.PersistenceIDs(ctx, prefix) {
			if !yield(id, err) {
				return
			}
		}
	}
}

func (s *Server) idView(id string) IDView {
	v := IDView{ID: id}
	if t := TypeOfID(s.cfg.Types, id); t != nil {
		v.Type = t.Name
		v.EntityID, _ = t.EntityID(id)
	} else if name, own := journal.SplitID(id); name != "" {
		v.Type, v.EntityID = name, own
	}
	return v
}

// existing returns the highest number of a persistence ID. The error matches ErrNotFound if it has
// neither records nor snapshots.
func (s *Server) existing(ctx context.Context, id string) (uint64, error) {
	if err := journal.CheckID(id); err != nil {
		return 0, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	highest, err := s.journal.HighestSequenceNr(ctx, id)
	if err != nil || highest > 0 {
		return highest, err
	}
	if s.snapshots != nil {
		for _, err := range s.snapshots.List(ctx, id, snapshot.Latest()) {
			return 0, err
		}
	}
	return 0, fmt.Errorf("%w: persistence ID %q", ErrNotFound, id)
}

// events returns a page of events.
func (s *Server) events(ctx context.Context, q EventQuery) (*EventPage, error) {
	highest, err := s.existing(ctx, q.ID)
	if err != nil {
		return nil, err
	}
	page := &EventPage{Highest: highest}
	if page.First, err = FirstRecord(ctx, s.journal, q.ID, highest); err != nil {
		if Unreachable(ctx, err) {
			return nil, err
		}
		page.First = 1 // the records themselves report the damage
	}
	if page.First == 0 {
		return page, nil
	}
	first, limit := page.First, limited(q.Limit, 50, 200)
	filter := q.filter()
	const window = 50 // records in memory
	from := min(q.From, highest)
	switch {
	case q.Backward && q.From == 0:
		from = highest
	case !q.Backward:
		from = max(q.From, first)
	}
	t := TypeOfID(s.cfg.Types, q.ID)
	left, examined, scratch := pageBytes, 0, []any(nil)
	for from >= first && from <= highest {
		lo, hi := from, min(highest, from+window-1)
		if q.Backward {
			lo, hi = max(first, from-min(from-1, window-1)), from
		}
		records, err := s.records(ctx, q.ID, lo, hi)
		if err != nil {
			return nil, err
		}
		if q.Backward {
			slices.Reverse(records)
		}
		for i := range records {
			r := &records[i]
			if examined == maxExamined || len(page.Events) == limit || left < 0 {
				page.Next = r.SequenceNr
				return page, nil
			}
			examined++
			v := s.eventView(q.ID, r, t, &scratch, cellBytes)
			if filter != nil && !filter(&v) {
				continue
			}
			page.Events = append(page.Events, v)
			left -= v.size()
		}
		if q.Backward {
			from = lo - 1
		} else {
			from = hi + 1
		}
	}
	return page, nil
}

// size returns an upper bound of the size of an event in a reply.
func (v *EventView) size() int {
	n := 512 + escaped(v.ID) + escaped(v.Manifest) + escaped(v.Writer) + escapedJSON(v.JSON) + escaped(v.Cut) + escaped(v.Problem)
	for _, tag := range v.Tags {
		n += escaped(tag)
	}
	return n
}

// filter returns whether an event is selected, nil if all are.
func (q *EventQuery) filter() func(*EventView) bool {
	if q.Manifest == "" && q.Text == "" && q.Since.IsZero() && q.Until.IsZero() {
		return nil
	}
	text := strings.ToLower(q.Text)
	return func(v *EventView) bool {
		return strings.Contains(v.Manifest, q.Manifest) && (q.Since.IsZero() || !v.Time.Before(q.Since)) && (q.Until.IsZero() || !v.Time.After(q.Until)) &&
			(text == "" || strings.Contains(strings.ToLower(string(v.JSON)), text))
	}
}

// FirstRecord returns the number of the first record of an ID up to a number, or 0 if there is
// none.
func FirstRecord(ctx context.Context, j journal.Journal, id string, to uint64) (uint64, error) {
	for _, bound := range []uint64{min(1, to), to} { // most IDs still have record 1; reading only that one avoids a page
		for e, err := range j.Replay(ctx, id, 1, bound) {
			return e.SequenceNr, err
		}
	}
	return 0, nil
}

// record is a stored record, or the reason why it is unreadable.
type record struct {
	journal.Event

	err error
}

// records reads the records of a range in ascending order. If one cannot be read, records reads the
// others one by one.
func (s *Server) records(ctx context.Context, id string, from, to uint64) ([]record, error) {
	list := make([]record, 0, to-from+1)
	for e, err := range s.journal.Replay(ctx, id, from, to) {
		if err == nil {
			list = append(list, record{e, nil})
			continue
		}
		if Unreachable(ctx, err) {
			return nil, fmt.Errorf("events of %q: %w", id, err)
		}
		next := from
		if n := len(list); n > 0 {
			next = list[n-1].SequenceNr + 1
		}
		for ; next <= to; next++ {
			one, broken := s.record(ctx, id, next)
			if broken != nil {
				return nil, broken
			}
			if one != nil {
				list = append(list, *one)
			}
		}
		break
	}
	return list, nil
}

// record reads one record, nil if there is none.
func (s *Server) record(ctx context.Context, id string, nr uint64) (*record, error) {
	for e, err := range s.journal.Replay(ctx, id, nr, nr) {
		if err == nil {
			return &record{e, nil}, nil
		}
		if Unreachable(ctx, err) {
			return nil, fmt.Errorf("event %d of %q: %w", nr, id, err)
		}
		return &record{journal.Event{SequenceNr: nr}, err}, nil
	}
	return nil, nil
}

// event returns one event.
func (s *Server) event(ctx context.Context, id string, nr uint64) (*EventPage, error) {
	highest, err := s.existing(ctx, id)
	if err != nil {
		return nil, err
	}
	r, err := s.record(ctx, id, nr)
	switch {
	case err != nil:
		return nil, err
	case r == nil:
		return nil, fmt.Errorf("%w: event %d of %q", ErrNotFound, nr, id)
	}
	var scratch []any
	return &EventPage{Events: []EventView{s.eventView(id, r, TypeOfID(s.cfg.Types, id), &scratch, payloadBytes)}, Highest: highest}, nil
}

// eventView describes an event, with up to limit bytes of JSON.
func (s *Server) eventView(id string, e *record, t *Type, scratch *[]any, limit int) EventView {
	if e.err != nil {
		return EventView{Nr: e.SequenceNr, Payload: Payload{Problem: cut("the record is unreadable: "+e.err.Error(), maxText)}}
	}
	v := EventView{Nr: e.SequenceNr, Time: e.Time, Writer: cut(e.Writer, maxTag), Manifest: cut(e.Manifest, 2*maxTag), Fence: e.IsFence()}
	for _, tag := range e.Tags[:min(len(e.Tags), maxTags)] {
		v.Tags = append(v.Tags, cut(tag, maxTag))
	}
	v.TraceID, v.SpanID = traceOf(e.Metadata)
	if v.Fence {
		return v
	}
	v.Payload = s.payload(id, e.Manifest, FormatOfRecord(id, e.Manifest), e.Payload, limit)
	if t == nil || v.Problem != "" {
		return v
	}
	if err := panics.Catch(func() error { return t.CheckEvent(scratch, e.Manifest, e.Payload) }); err != nil {
		v.Problem = "the program cannot decode the event"
		if s.cfg.Redact == nil { // the text may quote a field
			v.Problem = cut(v.Problem+": "+err.Error(), maxText)
		}
	}
	return v
}

// traceOf returns the IDs in the metadata of plugins/otel: the version 1, 16 bytes and 8 bytes.
func traceOf(metadata []byte) (traceID, spanID string) {
	const size = 1 + 16 + 8
	if len(metadata) < size || metadata[0] != 1 || [16]byte(metadata[1:17]) == [16]byte{} {
		return "", ""
	}
	return fmt.Sprintf("%x", metadata[1:17]), fmt.Sprintf("%x", metadata[17:size])
}

// maxRedacted bounds a payload that is redacted, in bytes of its JSON.
const maxRedacted = 16 << 20

// payload renders a payload, with up to limit bytes of JSON.
func (s *Server) payload(id, manifest string, f Format, stored []byte, limit int) Payload {
	p, hide, bound := Payload{Size: len(stored)}, s.redactionOf(id, manifest), limit
	if hide != nil {
		bound = maxRedacted
	}
	text, err := f.Render(stored, bound)
	if err == nil && hide != nil {
		text, p.Redacted, err = hide.text(text)
	}
	switch {
	case errors.Is(err, ErrTooLong) && hide != nil:
		p.Problem = "too long to be redacted"
	case err != nil && !errors.Is(err, ErrTooLong):
		p.Problem = cut(err.Error(), maxText)
	case err != nil || escapedJSON(text) > limit:
		p.Cut = cut(string(text), cutBytes)
	default:
		p.JSON = text
	}
	return p
}

func (s *Server) redactionOf(id, manifest string) *redaction {
	if s.cfg.Redact == nil {
		return nil
	}
	return &redaction{s.cfg.Redact, id, manifest}
}

// listSnapshots lists the snapshots of a persistence ID.
func (s *Server) listSnapshots(ctx context.Context, id string) (*SnapshotPage, error) {
	if s.snapshots == nil {
		return nil, fmt.Errorf("%w: no snapshot store", ErrUnsupported)
	}
	if _, err := s.existing(ctx, id); err != nil {
		return nil, err
	}
	page := &SnapshotPage{}
	for md, err := range s.snapshots.List(ctx, id, snapshot.Latest()) {
		if err != nil {
			return nil, fmt.Errorf("snapshots of %q: %w", id, err)
		}
		if page.More = len(page.Snapshots) == maxItems; page.More {
			break
		}
		page.Snapshots = append(page.Snapshots, SnapshotView{md.SequenceNr, md.Time})
	}
	return page, nil
}

// snapshot returns the state in a snapshot.
func (s *Server) snapshot(ctx context.Context, id string, nr uint64) (*StateView, error) {
	if s.snapshots == nil {
		return nil, fmt.Errorf("%w: no snapshot store", ErrUnsupported)
	}
	highest, err := s.existing(ctx, id)
	if err != nil {
		return nil, err
	}
	v := &StateView{Nr: nr, Highest: highest, From: nr}
	saved, err := s.snapshots.Load(ctx, id, snapshot.At(nr))
	switch {
	case errors.Is(err, snapshot.ErrNotFound):
		return nil, fmt.Errorf("%w: snapshot %d of %q", ErrNotFound, nr, id)
	case err != nil && Unreachable(ctx, err):
		return nil, fmt.Errorf("snapshot %d of %q: %w", nr, id, err)
	case err != nil:
		v.Problem = cut(err.Error(), maxText)
		return v, nil
	}
	f := FormatOfState(saved.Manifest, saved.Payload)
	if journal.IsReserved(id) {
		f = Own
	}
	v.Time, v.Manifest = saved.Time, cut(saved.Manifest, 2*maxTag)
	v.Payload = s.payload(id, saved.Manifest, f, saved.Payload, payloadBytes)
	return v, nil
}

// tail returns a page of events of all entities.
func (s *Server) tail(ctx context.Context, q TailQuery) (*TailPage, error) {
	querier, ok := journal.As[journal.Querier](s.journal)
	if !ok {
		return nil, fmt.Errorf("%w: no queries", ErrUnsupported)
	}
	if q.FromEnd {
		end, err := querier.End(ctx)
		return &TailPage{Next: end}, err
	}
	criteria := journal.Criteria{Types: q.Types, Tag: q.Tag}
	if q.ID != "" {
		if err := journal.CheckID(q.ID); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
		}
		if name, _ := journal.SplitID(q.ID); name != "" {
			criteria.Types = []string{name}
		}
		criteria.Slices = journal.Slices{First: journal.SliceOf(q.ID), Count: 1}
	}
	if len(q.Types) > maxItems {
		return nil, fmt.Errorf("%w: more than %d types", ErrInvalid, maxItems)
	}
	read, err := querier.Query(ctx, criteria, q.After)
	switch {
	case errors.Is(err, journal.ErrInvalid), errors.Is(err, journal.ErrOffset):
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	case err != nil:
		return nil, err
	}
	page, limit, left := &TailPage{Next: read.Next, More: read.More}, limited(q.Limit, 100, 200), pageBytes
	var scratch []any
	last := q.After
	for i := range read.Events {
		e := &read.Events[i]
		if len(page.Events) == limit || left < 0 {
			page.Next, page.More = last, true
			break
		}
		if last = e.Offset; q.ID != "" && q.ID != e.ID {
			continue
		}
		v := s.eventView(e.ID, &record{e.Event, nil}, TypeOfID(s.cfg.Types, e.ID), &scratch, cellBytes)
		v.ID, v.Offset = e.ID, e.Offset
		page.Events = append(page.Events, v)
		left -= v.size()
	}
	return page, nil
}
