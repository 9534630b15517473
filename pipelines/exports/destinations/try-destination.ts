import { checkDestination, checkLimits } from './check-destination.ts';
import { connectDestination, type DestinationPlace } from './connect-destination.ts';
import type { DestinationCredentials } from './destination-config.ts';
import type { DestinationPorts } from './destination-ports.ts';

/**
 * Checks a place with credentials that are not stored yet.
 * @throws OVERLOADED where too many checks of the workspace go on; as {@link connectDestination}, {@link checkDestination}.
 */
export async function tryDestination(
  ports: DestinationPorts,
  workspaceId: string,
  place: DestinationPlace,
  credentials: DestinationCredentials | undefined,
): Promise<void> {
  await ports.checks.during(workspaceId, async () => {
    const store = connectDestination(ports, place, credentials, ports.limits ?? checkLimits);
    try {
      await checkDestination(store);
    } finally {
      await store.close();
    }
  });
}
