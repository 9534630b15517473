/** Who asks, as the `authenticate` handler of a project says. Further fields are the project's own. Source: `@langchain/langgraph-sdk/auth`. */
export interface AgentUser {
  readonly identity: string;
  readonly display_name: string;
  readonly is_authenticated: boolean;
  readonly permissions: readonly string[];
  readonly [field: string]: unknown;
}

/** A request as that handler sees it: without its body. */
export interface AuthRequest {
  readonly method: string;
  readonly url: string;
  readonly headers: readonly (readonly [name: string, value: string])[];
}

/** What handlers are asked to allow: `threads:read` and so on, with the value that the handler may change. */
export interface AuthQuestion {
  readonly event: `${'threads' | 'assistants' | 'crons' | 'store'}:${string}`;
  readonly value: Readonly<Record<string, unknown>>;
  readonly user: AgentUser;
}

/** A status and text that the project's code chose. */
export interface AuthRefusal {
  readonly status: number;
  readonly message: string;
}

/** `filter` is what the handler answered where that was neither yes nor no; the rules for it are in `access-filter.ts`. */
export type AuthVerdict =
  | { readonly allowed: true; readonly filter: unknown; readonly value: Readonly<Record<string, unknown>> }
  | { readonly allowed: false; readonly refusal: AuthRefusal };

export type AuthIdentity = { readonly user: AgentUser } | { readonly refusal: AuthRefusal; readonly reason?: string };
