// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Command run runs the mutants whose names begin with one of its arguments, or
// all of them, and prints a table. It exits with status 1 unless every one was
// caught. Run it from the root of the module; see package mutants.
package main

import (
	"context"
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
	parallel := flag.Int("p", 2, "how many to run at once")
	timeout := flag.Duration("timeout", 2*time.Minute, "how long a test may take")
	verbose := flag.Bool("v", false, "print the rule of each")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	ok, err := run(ctx, flag.Args(), *parallel, *timeout, *verbose)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

// run reports whether all mutants were caught.
func run(ctx context.Context, prefixes []string, parallel int, timeout time.Duration, verbose bool) (bool, error) {
	root, err := filepath.Abs(".")
	if err != nil {
		return false, err
	}
	all, err := mutants.Load(os.DirFS(filepath.Join(root, "internal", "mutants")))
	if err != nil {
		return false, err
	}
	chosen := slices.DeleteFunc(all, func(m mutants.Mutant) bool {
		return len(prefixes) > 0 && !slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(m.Name, p) })
	})
	if len(chosen) == 0 {
		return false, fmt.Errorf("no mutant has a name that begins with %q", prefixes)
	}
	runner := mutants.Runner{Root: root, Timeout: timeout}
	unhealthy := checkTests(ctx, runner, chosen, parallel)
	results := make([]mutants.Result, len(chosen))
	each(chosen, parallel, func(i int, m mutants.Mutant) {
		if err := unhealthy[strings.Join(m.Test, " ")]; err != nil {
			results[i] = mutants.Result{Mutant: m, Outcome: mutants.Broken, Detail: err.Error()}
			return
		}
		results[i] = runner.Run(ctx, m)
	})
	return report(results, verbose), ctx.Err()
}

// checkTests runs each test once without a fault and returns what is wrong.
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

// each calls f for each element, some at once, and waits for all.
func each[E any](all []E, parallel int, f func(i int, e E)) {
	next := make(chan int)
	var workers sync.WaitGroup
	for range max(parallel, 1) {
		workers.Go(func() {
			for i := range next {
				f(i, all[i])
			}
		})
	}
	for i := range all {
		next <- i
	}
	close(next)
	workers.Wait()
}

// report prints the table and reports whether all were caught.
func report(results []mutants.Result, verbose bool) bool {
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
		rule := ""
		if verbose {
			rule = "  " + r.Mutant.Rule
		}
		fmt.Printf("%-*s  %-7s  %7.1f%s\n", width, r.Mutant.Name, r.Outcome, r.Took.Seconds(), rule)
		if r.Outcome == mutants.Caught && r.Detail != "" {
			fmt.Println("  " + strings.ReplaceAll(r.Detail, "\n", "\n  "))
		}
	}
	fmt.Printf("%d of %d caught\n", caught, len(results))
	return caught == len(results)
}
