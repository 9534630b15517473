export type ErrorClass = 'caller' | 'transient' | 'terminal';

export interface ErrorEntry {
  readonly status: number;
  readonly class: ErrorClass;
  readonly message: string;
  readonly remedy: string;
}

const defineClass =
  (errorClass: ErrorClass) =>
  (status: number, message: string, remedy: string): ErrorEntry => ({ status, class: errorClass, message, remedy });

export const caller = defineClass('caller');
export const transient = defineClass('transient');
export const terminal = defineClass('terminal');
