import { checkDestination, checkLimits } from './check-destination.ts';
import { connectDestination, type DestinationSettings } from './connect-destination.ts';
import type { DestinationCredentials } from './destination-config.ts';
import type { DestinationDeps } from './destination-deps.ts';

/**
 * Checks a destination with credentials that are not stored yet.
 *
 * @throws OVERLOADED if too many checks of the workspace are in flight; errors of {@link connectDestination} and {@link
 *   checkDestination}.
 */
export async function tryDestination(
  deps: DestinationDeps,
  workspaceId: string,
  settings: DestinationSettings,
  credentials: DestinationCredentials | undefined,
): Promise<void> {
  await deps.checks.during(workspaceId, async () => {
    const store = connectDestination(deps, settings, credentials, deps.limits ?? checkLimits);
    try {
      await checkDestination(store);
    } finally {
      await store.close();
    }
  });
}
