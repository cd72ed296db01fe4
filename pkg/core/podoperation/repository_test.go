package podoperation

import (
	"testing"

	"github.com/distribution/reference"
)

func TestRepositoryOf(t *testing.T) {
	const digest = "@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	for _, tc := range []struct{ image, want string }{
		{"web", "web"},
		{"web:v1", "web"},
		{"web" + digest, "web"},
		{"web:v1" + digest, "web"},
		{"team/web:v1", "team/web"},
		{"registry.example.com/team/web", "registry.example.com/team/web"},
		{"registry.example.com/team/web:v1", "registry.example.com/team/web"},
		{"host:5000/web", "host:5000/web"},
		{"host:5000/web:v1", "host:5000/web"},
		{"host:5000/web" + digest, "host:5000/web"},
		{"host:5000/team/web:v1" + digest, "host:5000/team/web"},
		{"[2001:db8::1]:5000/web:v1", "[2001:db8::1]:5000/web"},
	} {
		t.Run(tc.image, func(t *testing.T) {
			if got := imageRepository(tc.image); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
			parsed, err := reference.Parse(tc.image)
			if err != nil {
				t.Fatal(err)
			}
			if named := parsed.(reference.Named); named.Name() != tc.want {
				t.Errorf("kubelets read the repository %q, want %q", named.Name(), tc.want)
			}
		})
	}
}
