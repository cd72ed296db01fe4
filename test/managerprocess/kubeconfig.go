package managerprocess

import (
	"context"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

// The ServiceAccount of the manager.
const (
	Namespace = "podops-system"
	Account   = appsv1alpha1.ManagerName
)

// tokenSeconds is longer than any test.
const tokenSeconds = 4 * 3600

// WriteKubeconfig writes a kubeconfig with a token of the manager's ServiceAccount. config is an
// administrator's.
func WriteKubeconfig(ctx context.Context, config *rest.Config, path string) error {
	return WriteKubeconfigOf(ctx, config, types.NamespacedName{Namespace: Namespace, Name: Account}, path)
}

// WriteKubeconfigOf does the same for any ServiceAccount.
func WriteKubeconfigOf(ctx context.Context, config *rest.Config, account types.NamespacedName, path string) error {
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	token, err := clientset.CoreV1().ServiceAccounts(account.Namespace).CreateToken(ctx, account.Name,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To(int64(tokenSeconds))}}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("making a token of %s: %w", account, err)
	}
	written := clientcmdapi.NewConfig()
	written.Clusters["local"] = &clientcmdapi.Cluster{Server: config.Host, CertificateAuthorityData: config.CAData, CertificateAuthority: config.CAFile}
	written.AuthInfos[account.Name] = &clientcmdapi.AuthInfo{Token: token.Status.Token}
	written.Contexts["local"] = &clientcmdapi.Context{Cluster: "local", AuthInfo: account.Name}
	written.CurrentContext = "local"
	if err := clientcmd.WriteToFile(*written, path); err != nil {
		return fmt.Errorf("writing the kubeconfig of %s: %w", account, err)
	}
	return nil
}
