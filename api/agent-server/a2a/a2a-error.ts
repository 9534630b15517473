import { isRunlakeError } from '../../../infra/errors/runlake-error.ts';

/** Source: JSON-RPC 2.0, 5.1; A2A 0.3.0, 8. */
const codes = {
  invalidRequest: -32600,
  methodNotFound: -32601,
  invalidParams: -32602,
  internal: -32603,
  taskNotFound: -32001,
  pushNotSupported: -32003,
  unsupported: -32004,
  contentNotSupported: -32005,
} as const;

export interface RpcError {
  readonly code: number;
  readonly message: string;
}

/** Error of a protocol method, returned as a JSON-RPC error. */
export class A2aError extends Error {
  readonly code: number;

  constructor(kind: keyof typeof codes, message: string) {
    super(message);
    this.name = 'A2aError';
    this.code = codes[kind];
  }
}

/** Converts an error to a JSON-RPC error; undefined if the client did not cause it. */
export function toRpcError(error: unknown): RpcError | undefined {
  if (error instanceof A2aError) return { code: error.code, message: error.message };
  if (!isRunlakeError(error) || error.class !== 'caller') return undefined;
  return { code: error.code === 'RUN_NOT_FOUND' ? codes.taskNotFound : codes.invalidParams, message: error.message };
}

/** Returns true for errors of custom authentication, which are sent with their HTTP status. Source: A2A 0.3.0, 4.4. */
export function isCustomAuthError(error: unknown): boolean {
  return isRunlakeError(error) && error.code.startsWith('AUTH_');
}

export const internalError: RpcError = { code: codes.internal, message: 'Internal error' };
