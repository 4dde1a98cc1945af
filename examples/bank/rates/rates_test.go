// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package rates_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/refold-io/refold/examples/bank/money"
	"github.com/refold-io/refold/examples/bank/rates"
)

const example = `{"source": "example", "rates": [
	{"pair": "USD/TWD", "rate": "32.15", "as_of": "2026-07-01T08:00:00+08:00"},
	{"pair": "TWD/USD", "rate": "0", "as_of": "2026-07-01T00:00:00Z"}
]}`

func day(n int) time.Time { return time.Date(2026, 7, n, 0, 0, 0, 0, time.UTC) }

func parse(t *testing.T, text string) *rates.Table {
	t.Helper()
	table, err := rates.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func TestQuote(t *testing.T) {
	t.Parallel()
	table := parse(t, example)
	q, err := table.Quote(money.USD, money.TWD, day(20))
	if want := (rates.Quote{Rate: "32.15", Source: "example", AsOf: day(1)}); err != nil || q != want {
		t.Errorf("quote: got %v, %v; want %v", q, err, want)
	}
	if _, err := table.Quote(money.TWD, money.USD, day(1)); !errors.Is(err, money.ErrRate) {
		t.Errorf("Quote of a rate of 0: error %v, want ErrRate", err)
	}
	if _, err := parse(t, `{"rates": []}`).Quote(money.USD, money.TWD, day(1)); !errors.Is(err, rates.ErrMissing) {
		t.Errorf("Quote of a missing rate: error %v, want ErrMissing", err)
	}
}

func TestMaxAge(t *testing.T) {
	t.Parallel()
	table := parse(t, example).WithMaxAge(24 * time.Hour)
	if _, err := table.Quote(money.USD, money.TWD, day(2)); err != nil {
		t.Errorf("Quote at the maximum age: error %v, want none", err)
	}
	if _, err := table.Quote(money.USD, money.TWD, day(2).Add(1)); !errors.Is(err, rates.ErrStale) {
		t.Errorf("Quote above the maximum age: error %v, want ErrStale", err)
	}
}

func TestConvert(t *testing.T) {
	t.Parallel()
	table := parse(t, example)
	ten := money.New(1000, money.USD)
	x, err := rates.Convert(table, ten, money.TWD, day(3))
	want := rates.Exchange{Original: ten, Amount: money.New(32150, money.TWD), Rate: "32.15", Rounding: "half-even", Source: "example", AsOf: day(1)}
	if err != nil || x != want {
		t.Errorf("got %+v, %v; want %+v", x, err, want)
	}
	x, err = rates.Convert(parse(t, `{}`), ten, money.USD, day(3))
	if want := (rates.Exchange{Original: ten, Amount: ten}); err != nil || x != want {
		t.Errorf("Convert to the same currency: %+v, error %v; want %+v", x, err, want)
	}
	if _, err = rates.Convert(table, money.New(1000, money.TWD), money.USD, day(3)); !errors.Is(err, money.ErrRate) {
		t.Errorf("Convert at a bad rate: error %v, want ErrRate", err)
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"nothing":        ``,
		"no JSON":        `rates`,
		"two values":     `{} {}`,
		"unknown field":  `{"rate": []}`,
		"bad pair":       `{"rates": [{"pair": "USDTWD", "rate": "1"}]}`,
		"bad currency":   `{"rates": [{"pair": "USD/EUR", "rate": "1"}]}`,
		"one currency":   `{"rates": [{"pair": "USD/USD", "rate": "1"}]}`,
		"twice by alias": `{"rates": [{"pair": "USD/TWD", "rate": "1"}, {"pair": "USD/NTD", "rate": "2"}]}`,
		"twice":          `{"rates": [{"pair": "USD/TWD", "rate": "1"}, {"pair": "USD/TWD", "rate": "2"}]}`,
		"number as rate": `{"rates": [{"pair": "USD/TWD", "rate": 1.5}]}`,
		"bad time":       `{"rates": [{"pair": "USD/TWD", "rate": "1", "as_of": "yesterday"}]}`,
	} {
		if _, err := rates.Parse([]byte(text)); !errors.Is(err, rates.ErrFormat) {
			t.Errorf("%s: error %v, want ErrFormat", name, err)
		}
	}
}

// write replaces a file; every version has another modification time.
func write(t *testing.T, path string, version int, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	at := day(version)
	if err := os.Chtimes(path, at, at); err != nil {
		t.Fatal(err)
	}
}

func one(rate string) string {
	return fmt.Sprintf(`{"rates": [{"pair": "USD/TWD", "rate": %q, "as_of": "2026-07-01T00:00:00Z"}]}`, rate)
}

func TestFileChanges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "rates.json")
		write(t, path, 1, one("30"))
		var log strings.Builder
		f, err := rates.Open(path, rates.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); f.Run(ctx) }()
		check := func(rate money.Rate) {
			t.Helper()
			time.Sleep(time.Second)
			synctest.Wait()
			q, err := f.Quote(money.USD, money.TWD, day(1))
			if err != nil || q.Rate != rate || q.Source != "rates.json" {
				t.Errorf("got %+v, %v; want %s", q, err, rate)
			}
		}
		check("30")
		write(t, path, 2, one("31.5"))
		check("31.5")
		write(t, path, 3, `{"rates": [`) // a file that is only partly written
		check("31.5")
		if !strings.Contains(log.String(), "keeping the last valid rates") {
			t.Errorf("the log of an invalid file is %s, want \"keeping the last valid rates\"", log.String())
		}
		write(t, path, 4, one("32"))
		check("32")
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		check("32")
		cancel()
		<-done
	})
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, err := rates.Open(filepath.Join(dir, "missing.json"), rates.Config{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Open of a missing file: error %v, want ErrNotExist", err)
	}
	bad := filepath.Join(dir, "bad.json")
	write(t, bad, 1, "{")
	if _, err := rates.Open(bad, rates.Config{}); !errors.Is(err, rates.ErrFormat) || !strings.Contains(err.Error(), bad) {
		t.Errorf("Open of a bad file: error %v, want ErrFormat with the path", err)
	}
	large := filepath.Join(dir, "large.json")
	write(t, large, 1, strings.Repeat(" ", 1<<20)+"{}")
	if _, err := rates.Open(large, rates.Config{}); !errors.Is(err, rates.ErrFormat) {
		t.Errorf("Open of a large file: error %v, want ErrFormat", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(example))
	f.Add([]byte(`{"rates": [{"pair": "USD/TWD"}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		table, err := rates.Parse(data)
		if err != nil {
			if !errors.Is(err, rates.ErrFormat) {
				t.Fatal(err)
			}
			return
		}
		if q, err := table.Quote(money.USD, money.TWD, day(1)); err == nil {
			if _, err := q.Rate.Convert(money.New(1, money.USD), money.TWD); err != nil && !errors.Is(err, money.ErrOverflow) {
				t.Fatal(err)
			}
		}
	})
}
