/**
 * The user that the project's `authenticate` handler returned. The project may add fields. Source:
 * `@langchain/langgraph-sdk/auth`.
 */
export interface AgentUser {
  readonly identity: string;
  readonly display_name: string;
  readonly is_authenticated: boolean;
  readonly permissions: readonly string[];
  readonly [field: string]: unknown;
}

/** A request as the `authenticate` handler sees it, without a body. */
export interface AuthRequest {
  readonly method: string;
  readonly url: string;
  readonly headers: readonly (readonly [name: string, value: string])[];
}

/** An authorisation request to an auth handler: an event such as `threads:read`, and a value that the handler may change. */
export interface AuthQuestion {
  readonly event: `${'threads' | 'assistants' | 'crons' | 'store'}:${string}`;
  readonly value: Readonly<Record<string, unknown>>;
  readonly user: AgentUser;
}

/** HTTP status and text of a refusal, chosen by the project's code. */
export interface AuthRefusal {
  readonly status: number;
  readonly message: string;
}

/** `filter` is the handler's result if it was not a boolean, otherwise null. `access-filter.ts` validates it. */
export type AuthVerdict =
  | { readonly allowed: true; readonly filter: unknown; readonly value: Readonly<Record<string, unknown>> }
  | { readonly allowed: false; readonly refusal: AuthRefusal };

export type AuthIdentity = { readonly user: AgentUser } | { readonly refusal: AuthRefusal; readonly reason?: string };
