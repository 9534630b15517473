import type { ComponentProps } from 'react';

interface ButtonProps extends Omit<ComponentProps<'button'>, 'className'> {
  readonly kind?: 'primary' | 'danger' | 'quiet' | 'quiet danger' | 'icon' | 'quiet icon' | undefined;
}

/** A button. It submits its form only with `type="submit"`. */
export function Button({ kind, type = 'button', ...button }: ButtonProps) {
  return <button type={type} className={kind === undefined ? 'button' : `button ${kind}`} {...button} />;
}

/** The main button of a form, which submits it. */
export function SubmitButton(button: Omit<ButtonProps, 'kind' | 'type'>) {
  return <Button type="submit" kind="primary" {...button} />;
}
