/** An API key as the API returns it, without its secret. Times are ISO 8601 with microseconds. */
export interface KeyRecord {
  readonly id: string;
  readonly short_key: string;
  readonly description: string;
  readonly read_only: boolean;
  readonly created_at: string;
  readonly last_used_at: string | null;
  readonly expires_at: string | null;
  /** null: every workspace of the organisation. */
  readonly workspace_names: string[] | null;
  readonly default_workspace_name: string | null;
  readonly permissions: string[];
  readonly user_id: string;
  readonly user_email: string;
}

/** Select list of a {@link KeyRecord} from {@link keyTables}. */
export const keyColumns = `k.id, k.short_key, k.description, k.read_only, k.created_at, k.last_used_at, k.expires_at,
  CASE WHEN k.workspace_ids IS NOT NULL THEN
    ARRAY(SELECT w.display_name FROM workspaces w WHERE w.id = ANY (k.workspace_ids) ORDER BY w.display_name, w.id)
  END AS workspace_names,
  d.display_name AS default_workspace_name, k.permissions, k.user_id, u.email AS user_email`;

export const keyTables = `api_keys k JOIN users u ON u.id = k.user_id
  LEFT JOIN workspaces d ON d.id = k.default_workspace_id`;
