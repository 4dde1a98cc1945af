// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package snapshot_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/refold-io/refold/snapshot"
)

// saverDir is an environment variable with a directory. If it is set, this test program runs no
// tests and saves into the directory until it is killed.
const saverDir = "REFOLD_TEST_SAVER_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(saverDir); dir != "" {
		fmt.Fprintln(os.Stderr, saveUntilKilled(dir))
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

// numbered returns a snapshot whose payload contains its number.
func numbered(seqNr uint64) snapshot.Snapshot {
	return snapshot.Snapshot{Metadata: at("a", seqNr), Payload: bytes.Repeat([]byte{byte(seqNr)}, 100_000)}
}

// saveUntilKilled saves under increasing numbers, prints each stored number, and keeps the newest
// two snapshots.
func saveUntilKilled(dir string) error {
	store, err := snapshot.OpenFiles(dir, snapshot.FilesConfig{})
	if err != nil {
		return err
	}
	ctx := context.Background()
	newest, err := store.Load(ctx, "a", snapshot.Latest())
	if err != nil && !errors.Is(err, snapshot.ErrNotFound) {
		return err
	}
	for n := newest.SequenceNr + 1; ; n++ {
		if err := store.Save(ctx, numbered(n)); err != nil {
			return err
		}
		fmt.Println(n)
		if n > 2 {
			if err := store.Delete(ctx, "a", snapshot.UpTo(n-2)); err != nil {
				return err
			}
		}
	}
}

func TestFilesSurviveSIGKILL(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for round := range 5 {
		acknowledged := killSaver(t, dir, 3+7*round)
		store := openFiles(t, dir, snapshot.FilesConfig{})
		newest, err := store.Load(t.Context(), "a", snapshot.Latest())
		switch {
		case err != nil:
			t.Fatalf("round %d: Load: %v", round, err)
		case newest.SequenceNr < acknowledged || newest.SequenceNr > acknowledged+1:
			t.Errorf("round %d: the newest snapshot is %d, want at least the last acknowledged one, %d", round, newest.SequenceNr, acknowledged)
		case !bytes.Equal(newest.Payload, numbered(newest.SequenceNr).Payload):
			t.Errorf("round %d: the payload at %d is not the saved one", round, newest.SequenceNr)
		}
		for m, err := range store.List(t.Context(), "a", snapshot.Latest()) {
			if err != nil || m.SequenceNr+3 < newest.SequenceNr {
				t.Errorf("round %d: List: %d, %v", round, m.SequenceNr, err)
			}
		}
	}
}

// killSaver lets another process save and kills it after some saves. It returns the last number
// that was acknowledged.
func killSaver(t *testing.T, dir string, saves int) uint64 {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), saverDir+"="+dir)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	last, seen := "", 0
	for lines := bufio.NewScanner(out); lines.Scan(); {
		last = lines.Text()
		if seen++; seen == saves {
			if err = cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	_ = cmd.Wait() // it was killed
	n, err := strconv.ParseUint(last, 10, 64)
	if err != nil || seen < saves {
		t.Fatalf("the saver stopped after %d saves: %v, %s", seen, err, stderr.String())
	}
	return n
}

// TestFilesShareADirectory checks that saves succeed while other processes repeatedly open the
// directory. Each opening may interrupt a running save, which then uses up one of its hundred
// attempts.
func TestFilesShareADirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	store := openFiles(t, dir, snapshot.FilesConfig{})
	const perSave = 50
	openings := make(chan struct{}, perSave)
	var others sync.WaitGroup
	others.Go(func() {
		for range openings {
			other, err := snapshot.OpenFiles(dir, snapshot.FilesConfig{})
			if err != nil {
				t.Errorf("OpenFiles: %v", err)
				continue
			}
			if err := other.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
		}
	})
	defer others.Wait()
	defer close(openings)
	for seqNr := uint64(1); seqNr <= 50; seqNr++ {
		for range perSave {
			select {
			case openings <- struct{}{}:
			default:
			}
		}
		s := snapshot.Snapshot{Metadata: at("a", seqNr), Manifest: "m", Payload: []byte("state")}
		if err := store.Save(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
}
