/**
 * Amount check: the recorded amount must be the payment's.
 *
 * Advances to tone when it is, back to request when it is not, and to apology when the payment cannot be refunded.
 */
export default async function ({ variables, tools }) {
  const payment = JSON.parse(await tools.find_payment({ payment: variables.payment }));
  console.log(`paid ${payment.cents}, recorded ${variables.cents}`);
  if (!payment.refundable) {
    await tools.archmax_advance({ to: "apology", reason: `payment ${payment.payment} cannot be refunded` });
  } else if (payment.cents !== variables.cents) {
    await tools.archmax_advance({ to: "request", reason: `record cents as ${payment.cents}, not ${variables.cents}` });
  } else {
    await tools.archmax_advance({ to: "tone", reason: `${payment.cents} cents match the payment` });
  }
}
