import { afterAll, beforeAll } from 'vitest';

interface Closable {
  close?(): Promise<unknown> | unknown;
  remove?(): Promise<unknown>;
}

/**
 * Opens what the tests of a suite share before its first test, and closes it after the last one, by its method `close`, or
 * else `remove`, if it has one. Several calls open one after the other, and close in reverse order.
 *
 * @returns a proxy of the opened object.
 */
export function forSuite<Opened extends object>(open: () => Promise<Opened> | Opened, timeoutMs?: number): Opened {
  let opened: (Opened & Closable) | undefined;
  beforeAll(async () => {
    opened = await open();
  }, timeoutMs);
  afterAll(async () => {
    if (opened?.close) await opened.close();
    else await opened?.remove?.();
  });
  return createProxyTo(() => opened);
}

/** Returns a proxy whose members are always those of the object that `read` returns. */
export function createProxyTo<T extends object>(read: () => T | undefined): T {
  const object = (): object => read() ?? {};
  return new Proxy({} as T, {
    get(_, name) {
      const member: unknown = Reflect.get(object(), name);
      const isMethod = typeof member === 'function' && Object.getPrototypeOf(object()) !== Object.prototype;
      // Methods may use private fields.
      return isMethod ? member.bind(object()) : member;
    },
    has: (_, name) => Reflect.has(object(), name),
    ownKeys: () => Reflect.ownKeys(object()),
    getOwnPropertyDescriptor(_, name) {
      const descriptor = Reflect.getOwnPropertyDescriptor(object(), name);
      // The proxy has no members of its own, so those that it reports must be configurable.
      return descriptor && { ...descriptor, configurable: true };
    },
    defineProperty: (_, name, descriptor) => Reflect.defineProperty(object(), name, descriptor),
  });
}
