import { checkDestination, checkLimits } from './check-destination.ts';
import { connectDestination, type DestinationSettings } from './connect-destination.ts';
import type { DestinationCredentials } from './destination-config.ts';
import type { DestinationPorts } from './destination-ports.ts';

/**
 * Checks a destination with credentials that are not stored yet.
 *
 * @throws OVERLOADED if too many checks of the workspace are in flight; errors of {@link connectDestination} and {@link
 *   checkDestination}.
 */
export async function tryDestination(
  ports: DestinationPorts,
  workspaceId: string,
  settings: DestinationSettings,
  credentials: DestinationCredentials | undefined,
): Promise<void> {
  await ports.checks.during(workspaceId, async () => {
    const store = connectDestination(ports, settings, credentials, ports.limits ?? checkLimits);
    try {
      await checkDestination(store);
    } finally {
      await store.close();
    }
  });
}
