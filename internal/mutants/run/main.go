// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Command run runs the mutants whose name begins with one of its arguments, or all mutants without
// arguments, and prints a table. The exit status is 1 unless all these mutants were caught. With
// -rewrite the command runs no tests, but adapts the mutants to the source code. Run the command in
// the root of the module. Package mutants has the details.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/refold-io/refold/internal/mutants"
)

func main() {
	parallel := flag.Int("p", 2, "number of mutants to run at once")
	timeout := flag.Duration("timeout", 2*time.Minute, "time limit of a test")
	adapt := flag.Bool("rewrite", false, "run no tests, but write the current source code into mutants that match inexactly")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	ok := true
	source, chosen, err := load(flag.Args())
	switch {
	case err != nil:
	case *adapt:
		err = rewrite(source, chosen)
	default:
		ok, err = run(ctx, mutants.Runner{Source: source, Timeout: *timeout}, chosen, *parallel)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

const directory = "internal/mutants"

// load returns the mutants with a name that begins with one of the prefixes.
func load(prefixes []string) (*mutants.Source, []mutants.Mutant, error) {
	root, err := filepath.Abs(".")
	if err != nil {
		return nil, nil, err
	}
	all, err := mutants.Load(os.DirFS(filepath.Join(root, directory)))
	if err != nil {
		return nil, nil, err
	}
	chosen := slices.DeleteFunc(all, func(m mutants.Mutant) bool {
		return len(prefixes) > 0 && !slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(m.Name, p) })
	})
	if len(chosen) == 0 {
		return nil, nil, fmt.Errorf("no mutant has a name that begins with %q", prefixes)
	}
	return &mutants.Source{Root: root}, chosen, nil
}

// rewrite writes the current source code into the mutants that match inexactly.
func rewrite(source *mutants.Source, all []mutants.Mutant) error {
	var errs []error
	for _, m := range all {
		fit, err := source.Fit(m)
		if err != nil || fit.Exact {
			errs = append(errs, err)
			continue
		}
		fmt.Printf("%s: %s\n", m.Name, fit.Places)
		errs = append(errs, os.WriteFile(filepath.Join(source.Root, directory, m.Name+".mutant"), []byte(fit.Current.String()), 0o600))
	}
	return errors.Join(errs...)
}

// run reports whether all mutants were caught.
func run(ctx context.Context, runner mutants.Runner, chosen []mutants.Mutant, parallel int) (bool, error) {
	unhealthy := checkTests(ctx, runner, chosen, parallel)
	results := make([]mutants.Result, len(chosen))
	each(chosen, parallel, func(i int, m mutants.Mutant) {
		if err := unhealthy[strings.Join(m.Test, " ")]; err != nil {
			results[i] = mutants.Result{Mutant: m, Outcome: mutants.Broken, Detail: err.Error()}
			return
		}
		results[i] = runner.Run(ctx, m)
	})
	return report(results), ctx.Err()
}

// checkTests runs each test once without a fault. It returns the error of each test.
func checkTests(ctx context.Context, r mutants.Runner, all []mutants.Mutant, parallel int) map[string]error {
	var tests [][]string
	unhealthy := make(map[string]error)
	for _, m := range all {
		key := strings.Join(m.Test, " ")
		if _, seen := unhealthy[key]; !seen {
			unhealthy[key] = nil
			tests = append(tests, m.Test)
		}
	}
	var mu sync.Mutex
	each(tests, parallel, func(_ int, test []string) {
		err := r.Healthy(ctx, test)
		mu.Lock()
		defer mu.Unlock()
		unhealthy[strings.Join(test, " ")] = err
	})
	return unhealthy
}

// each calls f for each element, several at once, and waits for all calls.
func each[E any](all []E, parallel int, f func(i int, e E)) {
	var running sync.WaitGroup
	slots := make(chan struct{}, max(parallel, 1))
	for i, e := range all {
		slots <- struct{}{}
		running.Go(func() {
			f(i, e)
			<-slots
		})
	}
	running.Wait()
}

// report prints the table and reports whether all were caught.
func report(results []mutants.Result) bool {
	width, caught := len("mutant"), 0
	for _, r := range results {
		width = max(width, len(r.Mutant.Name))
		if r.Outcome == mutants.Caught {
			caught++
		} else {
			fmt.Printf("%s: %s: %s\n  %s\n%s\n\n", r.Outcome, r.Mutant.Name, r.Mutant.Rule, strings.Join(r.Mutant.Test, " "), r.Detail)
		}
	}
	fmt.Printf("%-*s  outcome  seconds\n", width, "mutant")
	for _, r := range results {
		fmt.Printf("%-*s  %-7s  %7.1f\n", width, r.Mutant.Name, r.Outcome, r.Took.Seconds())
		if r.Outcome == mutants.Caught && r.Detail != "" {
			fmt.Println("  " + strings.ReplaceAll(r.Detail, "\n", "\n  "))
		}
	}
	fmt.Printf("%d of %d caught\n", caught, len(results))
	return caught == len(results)
}
