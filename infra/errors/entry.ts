export type ErrorClass = 'caller' | 'transient' | 'terminal';

export interface ErrorEntry {
  readonly status: number;
  readonly class: ErrorClass;
  readonly retryable: boolean;
  readonly message: string;
  readonly remedy: string;
}

export const caller = (status: number, message: string, remedy: string): ErrorEntry => ({
  status,
  class: 'caller',
  retryable: false,
  message,
  remedy,
});
export const transient = (status: number, message: string, remedy: string): ErrorEntry => ({
  status,
  class: 'transient',
  retryable: true,
  message,
  remedy,
});
export const terminal = (status: number, message: string, remedy: string): ErrorEntry => ({
  status,
  class: 'terminal',
  retryable: false,
  message,
  remedy,
});

/** Errors of limits on what organisations and workspaces have and use. */
export const limitErrors = {
  // Limits
  LIMIT_REACHED: caller(422, 'The organization has reached its limit of {limit} {what}.', '{hint}.'),
  ORGANIZATION_LIMIT_REACHED: caller(
    422,
    'The limit of {limit} organizations is reached.',
    'Delete organizations that are not needed.',
  ),
  USAGE_LIMIT_REACHED: caller(
    429,
    'Usage limit exceeded: the workspace has {used} traces in {month} (UTC), and its limit is {limit}.',
    'Wait for the next month, or raise or delete the limit with PUT or DELETE /usage-limits.',
  ),
} as const satisfies Record<string, ErrorEntry>;
