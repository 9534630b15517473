import { randomUUID } from 'node:crypto';
import { fault } from '../../../infra/errors/runlake-error.ts';
import {
  type DestinationCredentials,
  type DestinationRecord,
  type DestinationType,
  destinationColumns,
  sealCredentials,
} from './destination-config.ts';
import type { DestinationPorts } from './destination-ports.ts';
import { type GivenConfig, settleConfig } from './settle-config.ts';
import { tryDestination } from './try-destination.ts';

export interface NewDestination {
  readonly type: DestinationType;
  readonly displayName: string;
  readonly config: GivenConfig;
  /** Absent: those that the S3 client finds itself, where the operator allows it. */
  readonly credentials?: DestinationCredentials | null | undefined;
}

/**
 * Makes a destination once a test object could be written there. Its credentials are stored sealed.
 *
 * @throws what {@link settleConfig} and {@link tryDestination} throw, BAD_REQUEST.
 */
export async function createDestination(
  ports: DestinationPorts,
  workspaceId: string,
  { type, displayName, config: given, credentials: givenCredentials }: NewDestination,
): Promise<DestinationRecord> {
  const credentials = givenCredentials ?? undefined;
  if (type === 'local' && credentials !== undefined) {
    throw fault('BAD_REQUEST', { reason: 'A destination of type local has no credentials.' });
  }
  const config = settleConfig(type, given);
  await tryDestination(ports, { destination_type: type, config }, credentials);
  const id = randomUUID();
  const stored = credentials && sealCredentials(ports.sealer, id, credentials);
  const [made] = await ports.database.query<DestinationRecord>(
    `INSERT INTO bulk_export_destinations (id, workspace_id, destination_type, display_name, config, sealed_credentials,
       credentials_keys)
     VALUES ($1, $2, $3, $4, $5, $6, $7) RETURNING ${destinationColumns}`,
    [id, workspaceId, type, displayName, config, stored?.sealed ?? null, stored?.keys ?? []],
  );
  return made as DestinationRecord;
}
