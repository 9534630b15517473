import { useEffect, useRef } from 'react';

/**
 * Properties of an input whose text is in the address of the page, which changes only after a key was pressed: an input
 * that always shows the value would move the caret to its end, and discard a date of which only a part is typed. The
 * input follows the address while it does not have the focus, for example after back.
 */
export function useAddressValue(value: string | number | undefined) {
  const ref = useRef<HTMLInputElement>(null);
  useEffect(() => {
    const { current } = ref;
    if (current && current !== document.activeElement) current.value = String(value ?? '');
  }, [value]);
  return { ref, defaultValue: value };
}
