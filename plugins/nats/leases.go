// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package nats

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/fielderror"
	"github.com/refold-io/refold/lease"
)

// LeasesConfig is the configuration of Leases.
type LeasesConfig struct {
	// Access holds the addresses of the servers, which need JetStream, and the credentials.
	Access

	// Cluster is the name of the cluster. Required.
	Cluster string
	// Name is the name of the node, or of the operator for CreateLeaseBucket. Its inbox receives
	// the replies of the server. Required.
	Name string
	// Timeout is the lifetime of an entry without renewal, at least 1 s. Leases with different
	// time-outs are in different buckets. Defaults to 120 s.
	Timeout time.Duration
	// Replicas is the number of servers that store each entry. A lease is as available and as safe
	// as its bucket: use 3 with three servers. Defaults to 1.
	Replicas int
	// Logger receives a record when the connection is lost or made. Defaults to a logger that
	// discards.
	Logger *slog.Logger
}

// Leases keeps leases in a key-value bucket of JetStream. It implements lease.Store. The bucket is
// on disk, so leases survive a restart of a server.
type Leases struct {
	timeout time.Duration
	nc      *nats.Conn
	kv      jetstream.KeyValue
	ctx     context.Context //nolint:containedctx // ends all calls at Close
	cancel  context.CancelCauseFunc
}

var _ lease.Store = (*Leases)(nil)

// CreateLeaseBucket creates the bucket of the leases of a cluster, or changes the settings of the
// bucket to those of cfg. It is a step of an operator with the permissions of
// LeaseBucketPermissions. It fails at once if no server accepts the connection.
func CreateLeaseBucket(ctx context.Context, cfg LeasesConfig) error {
	s, err := openLeases(ctx, cfg, inboxOperator)
	if err != nil {
		return err
	}
	return s.Close()
}

// OpenLeases connects and checks the settings of the bucket, which CreateLeaseBucket has created.
// The error matches ErrInvalid if a setting differs. OpenLeases waits for a server until ctx ends.
func OpenLeases(ctx context.Context, cfg LeasesConfig) (*Leases, error) {
	return openLeases(ctx, cfg, inboxLease)
}

func openLeases(ctx context.Context, cfg LeasesConfig, label string) (*Leases, error) {
	cfg.Timeout = cmp.Or(cfg.Timeout, 120*time.Second)
	cfg.Replicas = cmp.Or(cfg.Replicas, 1)
	opts, err := cfg.options()
	if err = errors.Join(err, cfg.validate()); err != nil {
		return nil, err
	}
	s := &Leases{timeout: cfg.Timeout}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	opts = append(opts, nats.Name("refold leases of "+cfg.Cluster+" for "+cfg.Name), nats.CustomInboxPrefix(inbox(cfg.Cluster, label, cfg.Name)),
		nats.RetryOnFailedConnect(label == inboxLease))
	if log := cfg.Logger; log != nil {
		opts = append(opts,
			nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
				if s.ctx.Err() == nil {
					log.WarnContext(s.ctx, "nats: connection lost", slog.String("connection", "leases"), slog.Any("error", err))
				}
			}),
			nats.ReconnectHandler(func(*nats.Conn) {
				log.InfoContext(s.ctx, "nats: connected", slog.String("connection", "leases"))
			}))
	}
	if s.nc, err = nats.Connect(strings.Join(cfg.URLs, ","), opts...); err != nil {
		return nil, fmt.Errorf("nats: connect: %w", err)
	}
	if err := s.open(ctx, cfg, label); err != nil {
		return nil, errors.Join(fmt.Errorf("nats: open the bucket of leases %s: %w", bucket(cfg.Cluster, cfg.Timeout), err), s.Close())
	}
	return s, nil
}

func (c LeasesConfig) validate() error {
	var errs fielderror.Errors
	errs.Add("LeasesConfig.Cluster", identity.CheckCluster(c.Cluster))
	errs.Add("LeasesConfig.Name", identity.CheckName(c.Name))
	if c.Timeout < time.Second {
		errs.Addf("LeasesConfig.Timeout", "is %v, the minimum is 1s", c.Timeout)
	}
	if c.Replicas < 1 || c.Replicas > 5 {
		errs.Addf("LeasesConfig.Replicas", "is %d, the range is 1 to 5", c.Replicas)
	}
	return errs.Err(ErrInvalid)
}

// bucket returns the name of the bucket of a cluster. The name of a bucket may contain letters,
// digits, "-" and "_". Colons of the cluster's name are therefore escaped.
func bucket(cluster string, timeout time.Duration) string {
	return "refold_lease_" + strings.NewReplacer("_", "__", ":", "_c").Replace(cluster) + "_" + strconv.FormatInt(timeout.Milliseconds(), 10)
}

// leaseKey returns a key for any name. Bytes that keys cannot contain are written in hexadecimal.
func leaseKey(name string) string {
	var b strings.Builder
	for i := range len(name) {
		c := name[i]
		if 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_' {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "=%02x", c)
		}
	}
	return b.String()
}

// stream returns the settings of the bucket. A server sends the reply to a read to any subject that
// the reader names. In a direct read the reply consists of the stored bytes, so a node could store
// a message and have it sent to any subject. The bucket therefore allows no direct reads.
func (c LeasesConfig) stream() jetstream.StreamConfig {
	name := bucket(c.Cluster, c.Timeout)
	return jetstream.StreamConfig{
		Name: "KV_" + name, Description: "leases of the Refold cluster " + c.Cluster, Subjects: []string{"$KV." + name + ".>"},
		MaxConsumers: -1, MaxMsgs: -1, MaxBytes: -1, MaxMsgSize: -1, MaxMsgsPerSubject: 1, Discard: jetstream.DiscardNew,
		MaxAge: c.Timeout, Duplicates: min(c.Timeout, 2*time.Minute), Storage: jetstream.FileStorage, Replicas: c.Replicas,
		DenyDelete: true, DenyPurge: true,
	}
}

// check compares all settings that affect leases.
func (c LeasesConfig) check(got jetstream.StreamConfig) error {
	want := c.stream()
	want.Description, want.Metadata, want.Placement = got.Description, got.Metadata, got.Placement
	var errs fielderror.Errors
	g, w := reflect.ValueOf(got), reflect.ValueOf(want)
	for field, value := range g.Fields() {
		if expected := w.FieldByIndex(field.Index); !reflect.DeepEqual(value.Interface(), expected.Interface()) {
			errs.Addf("StreamConfig."+field.Name, "is %v, want %v", value, expected)
		}
	}
	return errs.Err(ErrInvalid)
}

func (s *Leases) open(ctx context.Context, cfg LeasesConfig, label string) error {
	for !s.nc.IsConnected() { // requests fail without a connection
		changed := s.nc.StatusChanged(nats.CONNECTED, nats.CLOSED)
		if s.nc.IsConnected() {
			break
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return because(s.nc.LastError(), context.Cause(ctx))
		}
	}
	js, err := jetstream.New(s.nc)
	if err != nil {
		return err
	}
	if label == inboxOperator {
		_, err = js.CreateOrUpdateStream(ctx, cfg.stream())
		return err
	}
	stream, err := js.Stream(ctx, cfg.stream().Name)
	if err != nil {
		return fmt.Errorf("%w (an operator creates the bucket: see CreateLeaseBucket)", err)
	}
	if err = cfg.check(stream.CachedInfo().Config); err == nil {
		s.kv, err = js.KeyValue(ctx, bucket(cfg.Cluster, cfg.Timeout))
	}
	return err
}

// Timeout implements lease.Store.
func (s *Leases) Timeout() time.Duration { return s.timeout }

// Create implements lease.Store.
func (s *Leases) Create(ctx context.Context, name, owner string) (uint64, error) {
	return call(ctx, s, "create", name, func(ctx context.Context) (uint64, error) {
		if err := lease.Check("owner", owner); err != nil {
			return 0, err
		}
		revision, err := s.kv.Create(ctx, leaseKey(name), []byte(owner))
		if errors.Is(err, jetstream.ErrKeyExists) {
			err = lease.ErrHeld
		}
		return revision, err
	})
}

// Renew implements lease.Store.
func (s *Leases) Renew(ctx context.Context, name, owner string, revision uint64) (uint64, error) {
	return call(ctx, s, "renew", name, func(ctx context.Context) (uint64, error) {
		if err := lease.Check("owner", owner); err != nil {
			return 0, err
		}
		if revision == 0 { // the server would treat it as "not present"
			return 0, lease.ErrConflict
		}
		renewed, err := s.kv.Update(ctx, leaseKey(name), []byte(owner), revision)
		return renewed, conflict(err)
	})
}

// Delete implements lease.Store.
func (s *Leases) Delete(ctx context.Context, name string, revision uint64) error {
	_, err := call(ctx, s, "delete", name, func(ctx context.Context) (struct{}, error) {
		if revision == 0 { // the server would delete any revision
			return struct{}{}, lease.ErrConflict
		}
		return struct{}{}, conflict(s.kv.Delete(ctx, leaseKey(name), jetstream.LastRevision(revision)))
	})
	return err
}

// Get implements lease.Store.
func (s *Leases) Get(ctx context.Context, name string) (lease.Entry, error) {
	return call(ctx, s, "get", name, func(ctx context.Context) (lease.Entry, error) {
		entry, err := s.kv.Get(ctx, leaseKey(name))
		switch {
		case errors.Is(err, jetstream.ErrKeyNotFound):
			return lease.Entry{}, lease.ErrFree
		case err != nil:
			return lease.Entry{}, err
		case len(entry.Value()) > lease.MaxLength:
			return lease.Entry{}, fmt.Errorf("nats: the owner has %d bytes", len(entry.Value()))
		}
		return lease.Entry{Owner: string(entry.Value()), Revision: entry.Revision()}, nil
	})
}

// conflict returns lease.ErrConflict if a write was refused because of its revision. It returns
// other errors unchanged.
func conflict(err error) error {
	refused, ok := errors.AsType[*jetstream.APIError](err)
	if ok && (refused.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence || refused.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant) {
		return lease.ErrConflict
	}
	return err
}

// call calls f with a context that ends at Close, and adds the operation to the error.
func call[T any](ctx context.Context, s *Leases, action, name string, f func(context.Context) (T, error)) (result T, err error) {
	if err = lease.Check("name", name); err != nil {
		return result, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.ctx, func() { cancel(lease.ErrClosed) })() //nolint:contextcheck // Close ends all calls
	if result, err = f(ctx); err == nil {
		return result, nil
	}
	if s.ctx.Err() != nil {
		return result, lease.ErrClosed
	}
	return result, fmt.Errorf("nats: %s the lease %q: %w", action, name, err)
}

// Close implements lease.Store.
func (s *Leases) Close() error {
	s.cancel(lease.ErrClosed)
	s.nc.Close()
	return nil
}
