package prometheus

import (
	"fmt"
	"strings"
	"testing"
)

func TestDashboardIsWhole(t *testing.T) {
	dashboard, err := ReadDashboard(board)
	if err != nil {
		t.Fatal(err)
	}
	if dashboard.SchemaVersion < 39 || dashboard.UID == "" {
		t.Errorf("schemaVersion %d, uid %q", dashboard.SchemaVersion, dashboard.UID)
	}
	variables := map[string]bool{"__rate_interval": true}
	for _, variable := range dashboard.Templating.List {
		variables[variable.Name] = true
	}
	ids, titles, cells := map[int]bool{}, map[string]bool{}, map[[2]int]string{}
	for _, panel := range dashboard.Panels {
		if ids[panel.ID] || titles[panel.Title] || panel.Title == "" {
			t.Errorf("panel %d, %q: its id or its title is used twice", panel.ID, panel.Title)
		}
		ids[panel.ID], titles[panel.Title] = true, true
		if err := occupy(cells, panel); err != nil {
			t.Error(err)
		}
		if panel.IsRow() {
			continue
		}
		for _, target := range panel.Targets {
			if target.Datasource.UID != "${datasource}" || !variables["datasource"] {
				t.Errorf("panel %q reads from %q, and not from the chosen data source", panel.Title, target.Datasource.UID)
			}
			for _, part := range strings.Split(target.Expr, "$")[1:] {
				name := strings.FieldsFunc(part, func(r rune) bool { return r != '_' && (r < 'a' || r > 'z') })[0]
				if !variables[name] {
					t.Errorf("panel %q: the dashboard has no variable %s", panel.Title, name)
				}
			}
		}
		if len(panel.Targets) == 0 {
			t.Errorf("panel %q has no expression", panel.Title)
		}
	}
}

// occupy takes the cells of a panel on the grid.
func occupy(cells map[[2]int]string, panel Panel) error {
	at := panel.GridPos
	if at.X < 0 || at.W < 1 || at.H < 1 || at.X+at.W > 24 {
		return fmt.Errorf("panel %q is not on the grid: %+v", panel.Title, at)
	}
	for x := at.X; x < at.X+at.W; x++ {
		for y := at.Y; y < at.Y+at.H; y++ {
			if other := cells[[2]int{x, y}]; other != "" {
				return fmt.Errorf("panels %q and %q overlap", panel.Title, other)
			}
			cells[[2]int{x, y}] = panel.Title
		}
	}
	return nil
}
