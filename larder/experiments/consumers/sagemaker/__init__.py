"""SageMaker: requests to create a training job, and the rules that they have to follow."""
