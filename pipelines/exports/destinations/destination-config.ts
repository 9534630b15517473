import type { Sealer } from '../../../infra/sealing/sealer.ts';

/** How a destination is stored and answered; `null` is what was not given. Source of the fields: main API, bulk export. */
export interface DestinationConfig {
  readonly bucket_name: string | null;
  readonly prefix: string;
  readonly region: string | null;
  readonly endpoint_url: string | null;
  readonly include_bucket_in_prefix: boolean;
  readonly config_kwargs_s3: { readonly addressing_style: AddressingStyle } | null;
}

export type DestinationType = 's3' | 'local';
export type AddressingStyle = 'virtual' | 'path' | 'auto';

/** As they travel and are sealed. */
export interface DestinationCredentials {
  readonly access_key_id: string;
  readonly secret_access_key: string;
  readonly session_token?: string | null | undefined;
}

/** A destination as it is answered: everything but its credentials, of which only the names are told. */
export interface DestinationRecord {
  readonly id: string;
  readonly tenant_id: string;
  readonly destination_type: DestinationType;
  readonly display_name: string;
  readonly config: DestinationConfig;
  readonly credentials_keys: readonly string[];
  readonly created_at: string;
  readonly updated_at: string;
}

/** Columns of a {@link DestinationRecord}. */
export const destinationColumns =
  'id, workspace_id AS tenant_id, destination_type, display_name, config, credentials_keys, created_at, updated_at';

/** What is stored of credentials: the values that are used, sealed for the row `id`, and their names. */
export function sealCredentials(sealer: Sealer, id: string, given: DestinationCredentials) {
  const { access_key_id, secret_access_key, session_token } = given;
  const kept = { access_key_id, secret_access_key, ...(session_token == null ? {} : { session_token }) };
  return { sealed: sealer.seal(JSON.stringify(kept), id), keys: Object.keys(kept) };
}
