"""TuranMart, an online shop in Tashkent, Almaty, Bishkek, Samarkand and Astana.

Four streams come in: clickstream, payments, orders and logins. Their contracts are in `contracts/`;
the shoppers who make them up for demos and tests are in `traffic/`.
"""

from headrace import App

app = App("turanmart", contracts="contracts")
