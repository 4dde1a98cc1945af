// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// The process runs the program instead of the tests if this variable is set: see TestCrashes.
const programArguments = "SAGA_ARGUMENTS"

func TestMain(m *testing.M) {
	if dir, crash, ok := strings.Cut(os.Getenv(programArguments), "\n"); ok {
		if err := run(context.Background(), dir, crash); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func Example() {
	dir, err := os.MkdirTemp("", "saga-")
	if err == nil {
		defer os.RemoveAll(dir) //nolint:errcheck // a temporary directory
		err = run(context.Background(), dir, "")
	}
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// orders that continue: 0
	// o1: completed
	// o2: out of stock
	// o3: not paid
	// o4: completed
	// tea: 0 units, ann: 0 euros
}

// The process is killed after each event of each entity. The next process ends all orders with the
// same outcomes, and every unit and every euro counts once.
func TestCrashes(t *testing.T) {
	t.Parallel()
	for id, events := range map[string]int{"order|o1": 3, "order|o2": 2, "order|o3": 4, "order|o4": 3, "stock|tea": 5, "wallet|ann": 3} {
		for nr := 1; nr <= events; nr++ {
			crash := fmt.Sprintf("%s:%d", id, nr)
			t.Run(crash, func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				if out, err := process(t, dir, crash); err == nil || !strings.Contains(err.Error(), "killed") {
					t.Fatalf("the first process ends with %v, want it killed; output:\n%s", err, out)
				}
				out, err := process(t, dir, "")
				_, outcomes, _ := strings.Cut(out, "\n")
				if want := "o1: completed\no2: out of stock\no3: not paid\no4: completed\ntea: 0 units, ann: 0 euros\n"; err != nil || outcomes != want {
					t.Errorf("the second process ends with %v and prints\n%s\nwant\n%s", err, out, want)
				}
			})
		}
	}
}

// process runs the program in a process of its own.
func process(t *testing.T, dir, crash string) (string, error) {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program)
	cmd.Env = append(os.Environ(), programArguments+"="+dir+"\n"+crash)
	out, err := cmd.CombinedOutput()
	return string(out), err
}
