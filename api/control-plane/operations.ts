import { listByTag, type Operation } from '../server/operation.ts';
import { connectionOperations } from './agent-connections.ts';
import { authenticationOperations } from './authenticate.ts';
import { deploymentOperations } from './deployments.ts';
import { callbackOperations } from './oauth-callbacks.ts';
import { providerOperations } from './oauth-providers.ts';
import { tokenOperations } from './oauth-tokens.ts';
import { revisionLogOperations } from './revision-logs.ts';
import { revisionOperations } from './revisions.ts';
import { uploadOperations } from './uploads.ts';

/** All operations of the control plane, which are part of the main API. Clients also send them below `/api-host`. */
export const controlPlaneOperations: readonly Operation[] = listByTag({
  deployments: [...deploymentOperations, ...revisionOperations, ...revisionLogOperations, ...uploadOperations],
  authentication: [
    ...authenticationOperations,
    ...callbackOperations,
    ...providerOperations,
    ...tokenOperations,
    ...connectionOperations,
  ],
});
