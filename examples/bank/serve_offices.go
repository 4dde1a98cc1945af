// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !embedded

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/refold-io/refold/cluster"
)

// offices are the branches that are in this process, each with its counter: the API.
type offices struct {
	app    *app
	whole  bool // they are the whole cluster
	remote bool // the NATS servers are elsewhere

	running sync.WaitGroup
	mu      sync.Mutex
	all     []*branch
	errs    []error
}

// open opens the counter of a branch. The offices have it from now on, also if it fails.
func (o *offices) open(b *branch, listener net.Listener) error {
	o.mu.Lock()
	o.all = append(o.all, b)
	o.mu.Unlock()
	ctx, stop := context.WithCancel(context.WithoutCancel(o.app.ctx))
	closed := make(chan struct{})
	_, err := b.node.OnShutdown(cluster.PhaseRequestsDone, "requests", func(ctx context.Context) error {
		stop() // requests in hand are answered
		select {
		case <-closed:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
	if err != nil {
		stop()
		return fmt.Errorf("serve: %w", err)
	}
	o.running.Go(func() {
		defer close(closed)
		defer stop()
		if err := serve(ctx, listener, o.counter(b)); err != nil {
			o.fail(fmt.Errorf("%s: %w", b.node.Self().Name, err))
			b.node.Stop()
		}
	})
	return nil
}

// counter is the API of a branch. Where all of them are in this process, one can be stopped to see what the others make of it.
func (o *offices) counter(b *branch) http.Handler {
	if !o.whole {
		return b.api()
	}
	mux := http.NewServeMux()
	mux.Handle("/", b.api())
	mux.HandleFunc("DELETE /nodes/{name}", o.stop)
	return http.NewCrossOriginProtection().Handler(mux)
}

// stop ends a branch without letting it leave: the others have to find out.
func (o *offices) stop(w http.ResponseWriter, r *http.Request) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, b := range o.all {
		if b.node.Self().Name != r.PathValue("name") {
			continue
		}
		b.node.Stop()
		printf(w, "%s stops without leaving; the others give it up when they have not heard of it for some seconds\n", b.node.Self().Name)
		return
	}
	http.Error(w, "there is no such branch", http.StatusNotFound)
}

// hurry is how long a branch waits for others without a word.
const hurry = 5 * time.Second

// ready waits until each branch reaches all accounts. It says what it waits for, if that is not in this process.
func (o *offices) ready(ctx context.Context) error {
	for _, b := range o.all {
		for said := ""; ; {
			soon, cancel := context.WithTimeout(ctx, hurry)
			err := b.region.AwaitReady(soon)
			late := soon.Err() != nil && ctx.Err() == nil
			cancel()
			if err == nil {
				break
			}
			if !late {
				return fmt.Errorf("serve: %w", err)
			}
			if why := b.waitsFor(); o.remote && why != said {
				said = why
				printf(o.app.stderr, "%s waits for %s\n", b.node.Self().Name, why)
			}
		}
	}
	return nil
}

// giveUp ends all branches because something has failed. If a node has ended by itself, that is why.
func (o *offices) giveUp(err error) error {
	closed := o.close()
	var why error
	for _, b := range o.all {
		if b.gaveUp() {
			why = errors.Join(why, fmt.Errorf("%s: %w", b.node.Self().Name, b.node.Err()))
		}
	}
	if why != nil {
		err = why
	}
	return errors.Join(err, closed)
}

// wait returns when all branches have ended: because the program is to end, or each for a reason of its own.
func (o *offices) wait() error {
	prepared := make(chan struct{})
	stop := context.AfterFunc(o.app.ctx, func() {
		defer close(prepared)
		o.prepare()
	})
	for _, b := range o.all {
		o.running.Go(func() {
			select {
			case <-o.app.ctx.Done():
				<-prepared
			case <-b.node.Stopping():
				o.fail(o.ended(b))
				return
			}
			o.fail(b.shutdown(context.WithoutCancel(o.app.ctx)))
		})
	}
	o.running.Wait()
	stop()
	if err := errors.Join(o.errs...); err != nil {
		return err
	}
	printf(o.app.stdout, "stopped\n")
	return nil
}

// prepare tells all branches that all of them are going to end, if it is so: nothing needs to move then.
func (o *offices) prepare() {
	for _, b := range o.all {
		if o.whole && b.node.PrepareForShutdown(context.WithoutCancel(o.app.ctx)) == nil {
			return
		}
	}
}

// ended waits for a branch that ends by itself, and returns why unless it has just left.
func (o *offices) ended(b *branch) error {
	err := b.close()
	why := b.node.Err()
	printf(o.app.stdout, "%s has ended: %v\n", b.node.Self().Name, why)
	if b.gaveUp() {
		err = errors.Join(fmt.Errorf("%s: %w", b.node.Self().Name, why), err)
	}
	return err
}

// close ends all branches at once.
func (o *offices) close() (err error) {
	for _, b := range o.all {
		b.node.Stop()
	}
	for _, b := range o.all {
		err = errors.Join(err, b.close())
	}
	o.running.Wait()
	return err
}

func (o *offices) fail(err error) {
	if err == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.errs = append(o.errs, err)
}
