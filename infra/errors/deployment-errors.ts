import { transient } from './entry.ts';

/** Errors of deployments. */
export const deploymentErrors = {
  DEPLOYMENT_NOT_SERVING: transient(
    503,
    'Deployment {deployment} has no replica that answers.',
    'Read the status of its latest revision; retry if that is still being deployed.',
  ),
} as const;
