import { useState } from 'react';
import { v4 as createUuid } from 'uuid';
import { ApiError } from '../api/client.ts';

/**
 * The id of the object that a form creates, and the `onSettled` of the mutation that sends it. If the response is lost,
 * the object may exist: the form then sends the same id again, so that it creates the object once.
 */
export function useNewId() {
  // `crypto.randomUUID` is missing on http pages of other hosts than localhost.
  const [id, setId] = useState(() => createUuid());
  const onSettled = (_created: unknown, error: Error | null) => {
    const isLost = error instanceof ApiError && (error.status === 0 || error.status >= 500);
    if (!isLost) setId(createUuid());
  };
  return { id, onSettled };
}
