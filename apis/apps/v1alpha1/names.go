package v1alpha1

// Names in the documents of PodOpsLifecycle and ResourceConsist, for code that is written after them.
const (
	// PodOperationProtectionFinalizerPrefix is ProtectionFinalizerPrefix.
	PodOperationProtectionFinalizerPrefix = ProtectionFinalizerPrefix

	// PodAvailableConditionsAnnotation is AvailableConditionsAnnotationKey.
	PodAvailableConditionsAnnotation = AvailableConditionsAnnotationKey
)

// PodAvailableConditions is AvailableConditions.
type PodAvailableConditions = AvailableConditions
