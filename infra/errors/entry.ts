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
