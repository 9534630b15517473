/** User and group id under which Postgres runs, where they are not those of this process. */
export interface Account {
  readonly uid: number;
  readonly gid: number;
}

/** `nobody`: Postgres refuses to run as root. */
export const nobody: Account = { uid: 65_534, gid: 65_534 };
