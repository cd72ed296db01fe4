package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// load is the process that writes and reads.
type load struct {
	command *exec.Cmd
	report  string
}

// counts are the operations of a kind in a report.
type counts struct {
	Succeeded      int   `json:"succeeded"`
	Failed         int   `json:"failed"`
	FailedAttempts int   `json:"failedAttempts"`
	MaxMillis      int64 `json:"maxMillis"`
}

// report is the part of the report of kvstore-load that the demo prints.
type report struct {
	Reads          counts `json:"reads"`
	Writes         counts `json:"writes"`
	LostWrites     int    `json:"lostWrites"`
	RepeatedWrites int    `json:"repeatedWrites"`
	Linearizable   string `json:"linearizable"`
	LeaderChanges  []struct {
		From      time.Time `json:"from"`
		OldLeader string    `json:"oldLeader"`
		NewLeader string    `json:"newLeader"`
		Millis    int64     `json:"millis"`
	} `json:"leaderChanges"`
	Failures []struct {
		Kind   string `json:"kind"`
		Reason string `json:"reason"`
		Count  int    `json:"count"`
	} `json:"failures"`
}

// startLoad starts to write and read through all members.
func (s *show) startLoad() error {
	path := filepath.Join(s.dir, "load.json")
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("removing an old report: %w", err)
	}
	command := exec.Command(filepath.Join(s.bin, "kvstore-load"), "--service", name, "--hosts-file", s.kubelet.HostsFile(s.namespace), "--report", path)
	log, err := os.Create(filepath.Join(s.dir, "load.log"))
	if err != nil {
		return fmt.Errorf("opening the log of the load: %w", err)
	}
	defer log.Close()
	command.Stdout, command.Stderr = log, log
	if err := command.Start(); err != nil {
		return fmt.Errorf("starting the load: %w", err)
	}
	s.load = &load{command: command, report: path}
	return nil
}

// kill ends the load without a report.
func (l *load) kill() { _ = l.command.Process.Kill() } // it may have ended

// end ends the load, and returns its report. It fails if the store has lost data.
func (s *show) endLoad() (r report, err error) {
	l := s.load
	if err := l.command.Process.Signal(syscall.SIGTERM); err != nil {
		return r, fmt.Errorf("ending the load: %w", err)
	}
	ended := l.command.Wait()
	s.load = nil
	data, err := os.ReadFile(l.report)
	if err != nil {
		return r, errors.Join(ended, fmt.Errorf("reading the report of the load: %w", err))
	}
	if err := json.Unmarshal(data, &r); err != nil {
		return r, fmt.Errorf("decoding the report of the load: %w", err)
	}
	if ended != nil {
		return r, fmt.Errorf("the load: %w\n%s", ended, data)
	}
	return r, nil
}
